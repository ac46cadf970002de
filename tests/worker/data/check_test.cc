#include "worker/data/check.h"

#include <string>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"
#include "worker/data/dataset.h"

namespace tundish::data {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

class CheckDataTest : public ::testing::Test {
 protected:
  CheckDataTest() {
    for (int i = 0; i < 6; ++i) {
      for (const char* place : {"train/ok", "train/bad", "val/ok", "val/bad"}) {
        const auto variant = static_cast<uint32_t>(std::string_view(place).size() * 100 + i);
        folder_.Write(fmt::format("{}/{}.png", place, i), EncodePng(Pattern(12, 12, 1, variant)));
      }
    }
    spec_.mutable_data()->set_folder(folder_.path().string());
    spec_.mutable_data()->set_bad_files(v1::FAIL);
    spec_.mutable_model()->set_image_size(8);
    spec_.mutable_model()->set_channels(1);
    spec_.mutable_training()->set_global_batch(4);
  }

  TempFolder folder_;
  v1::JobSpec spec_;
};

TEST_F(CheckDataTest, ReportsWhatIsThere) {
  for (const int threads : {1, 3}) {
    const auto report = CheckData(spec_, threads);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->classes(), ::testing::ElementsAre("bad", "ok"));
    EXPECT_EQ(report->train_images(), 12U);
    EXPECT_EQ(report->validation_images(), 12U);
    EXPECT_EQ(report->counts(1).name(), "ok");
    EXPECT_EQ(report->counts(1).train(), 6U);
    EXPECT_EQ(report->counts(1).validation(), 6U);
    EXPECT_EQ(report->bad_file_count(), 0U);
    EXPECT_EQ(report->duplicates_across_split(), 0U);
    EXPECT_EQ(report->manifest_hash(), Dataset::Scan(spec_.data())->ManifestHash());
    EXPECT_EQ(report->warnings_size(), 0) << report->DebugString();
  }
}

// Case 25: a truncated JPEG is named in the report; training goes on by policy.
TEST_F(CheckDataTest, BadFilesFailOrAreSkippedByPolicy) {
  const std::string jpeg = EncodeJpeg(Pattern(40, 40, 1));
  folder_.Write("train/ok/broken.jpg", jpeg.substr(0, jpeg.size() / 2));
  folder_.Write("val/bad/empty.png", "");
  const auto failed = CheckData(spec_, 2);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(Message(failed.status()),
              HasSubstr("2 of 26 images cannot be used (1 empty, 1 truncated): "
                        "'train/ok/broken.jpg': truncated JPEG"));
  EXPECT_THAT(Message(failed.status()), HasSubstr("'val/bad/empty.png': empty file"));
  EXPECT_THAT(Message(failed.status()), HasSubstr("set data.bad_files to SKIP"));

  spec_.mutable_data()->set_bad_files(v1::SKIP);
  const auto too_many = CheckData(spec_, 2);
  EXPECT_THAT(Message(too_many.status()), HasSubstr("more than data.max_bad_fraction 0.05 allows"));

  spec_.mutable_data()->set_max_bad_fraction(0.2);
  const auto skipped = CheckData(spec_, 2);
  ASSERT_TRUE(skipped.ok()) << skipped.status();
  EXPECT_EQ(skipped->bad_file_count(), 2U);
  ASSERT_EQ(skipped->bad_files_size(), 2);
  EXPECT_EQ(skipped->bad_files(0).path(), "train/ok/broken.jpg");
  EXPECT_EQ(skipped->bad_files(0).kind(), "truncated");
  ASSERT_EQ(skipped->bad_kinds_size(), 2);
  EXPECT_EQ(skipped->bad_kinds(0).name(), "empty");
  EXPECT_EQ(skipped->bad_kinds(0).count(), 1U);
  EXPECT_EQ(skipped->train_images(), 12U);
  // What a rank does with the report.
  std::set<std::string> excluded;
  for (const v1::BadFile& file : skipped->bad_files()) excluded.insert(file.path());
  EXPECT_EQ(Dataset::Scan(spec_.data(), excluded)->ManifestHash(), skipped->manifest_hash());
}

TEST_F(CheckDataTest, MissingFilesOfAManifestAreNamed) {
  spec_.mutable_data()->set_manifest(folder_.Write(
      "m.csv",
      "path,label,split\ntrain/ok/0.png,ok,train\ngone.png,bad,train\nval/ok/0.png,ok,val\n"
      "val/bad/0.png,bad,val\n"));
  const auto report = CheckData(spec_, 1);
  EXPECT_THAT(Message(report.status()),
              HasSubstr("'gone.png': cannot open: No such file or directory"));
}

TEST_F(CheckDataTest, ReportsFormatsSizesAndNamesThatMislead) {
  folder_.Write("train/ok/photo.png", EncodeJpeg(Pattern(50, 40, 3)));
  folder_.Write("train/ok/photo.JPEG", EncodeJpeg(Pattern(30, 20, 1)));
  const auto report = CheckData(spec_, 2);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->forms_size(), 3);
  EXPECT_EQ(report->forms(0).name(), "PNG grey");
  EXPECT_EQ(report->forms(0).count(), 24U);
  EXPECT_EQ(report->forms(1).name(), "JPEG colour");
  EXPECT_EQ(report->forms(2).name(), "JPEG grey");
  EXPECT_EQ(report->sizes().least_side(), 12U);
  EXPECT_EQ(report->sizes().median_side(), 12U);
  EXPECT_EQ(report->sizes().most_side(), 40U);
  EXPECT_EQ(report->sizes().most_pixels(), 2000);
  EXPECT_GT(report->total_bytes(), 1000);
  EXPECT_DOUBLE_EQ(report->imbalance(), 8.0 / 6);
  EXPECT_THAT(report->warnings(), Contains(AllOf(HasSubstr("1 files hold another format"),
                                                 HasSubstr("'train/ok/photo.png' holds a JPEG"))));
}

TEST(BadFileKindTest, EveryReasonHasOne) {
  for (const auto& [reason, kind] : std::initializer_list<std::pair<const char*, const char*>>{
           {"empty file", "empty"},
           {"truncated PNG: the file ends early", "truncated"},
           {"unreadable JPEG: bad code", "damaged"},
           {"not an image: starts with 78; expected", "not_an_image"},
           {"a GIF; expected JPEG", "unsupported"},
           {"an animated WebP; expected a still image", "unsupported"},
           {"too large: 65536 x 65536 pixels", "too_large"},
           {"cannot open: No such file or directory", "unreadable"},
           {"cannot read: Input/output error", "unreadable"}}) {
    EXPECT_EQ(BadFileKind(reason), kind) << reason;
  }
}

TEST_F(CheckDataTest, AGlobalBatchLargerThanTheTrainingSplitIsRefused) {
  spec_.mutable_training()->set_global_batch(13);
  EXPECT_THAT(Message(CheckData(spec_, 1).status()),
              HasSubstr("has 12 images, fewer than training.global_batch 13"));
}

TEST_F(CheckDataTest, WarnsOfDuplicatesContradictionsImbalanceAndSizes) {
  const std::string twin = EncodePng(Pattern(12, 12, 1, 9999));
  folder_.Write("train/ok/twin.png", twin);
  folder_.Write("val/bad/twin.png", twin);
  for (int i = 0; i < 60; ++i) {
    folder_.Write(fmt::format("train/ok/more{}.png", i), EncodePng(Pattern(12, 12, 1, 2000 + i)));
  }
  folder_.Write("val/rare/0.png", EncodePng(Pattern(6, 6, 1, 3000)));
  folder_.Write("train/rare/0.png", EncodePng(Pattern(12, 12, 1, 3001)));
  const auto report = CheckData(spec_, 2);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->duplicates_across_split(), 1U);
  EXPECT_THAT(report->warnings(),
              Contains(HasSubstr("'train/ok/twin.png' and 'val/bad/twin.png'")));
  EXPECT_THAT(report->warnings(), Contains(HasSubstr("equal content and different labels")));
  EXPECT_THAT(report->warnings(),
              Contains(HasSubstr("class 'ok' has 67 training images and 'rare' 1")));
  EXPECT_THAT(report->warnings(), Contains(HasSubstr("class 'rare' has only 1 validation images")));
  EXPECT_THAT(report->warnings(),
              Contains(HasSubstr("1 images are smaller than model.image_size 8")));
}

}  // namespace
}  // namespace tundish::data
