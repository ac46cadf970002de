#include "runtime/config/message_config.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "tundish/v1/job.pb.h"
#include "tundish/v1/rank.pb.h"

namespace tundish {
namespace {

using testing::HasSubstr;
using v1::JobSpec;

TEST(MessageFromYamlTest, ReadsEveryKindOfField) {
  JobSpec spec;
  const absl::Status read = MessageFromYaml(R"(# weekly
name: elpv
priority: -5
data:
  folder: "data/elpv cells"
  classes: [good, 'bad']
  bad_files: skip
  max_bad_fraction: 0
  mean:
    - 0.25
    - 1e-1
  cache_bytes: "18446744073709551615"
  augment: {horizontal_flip: true, vertical_flip: FALSE}
training:
  epochs: 12
  precision: Bf16
  optimizer: { learning_rate: 3e-4, clip_norm: .5 }
evaluation:
)",
                                            &spec);
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_EQ(spec.name(), "elpv");
  EXPECT_EQ(spec.priority(), -5);
  EXPECT_EQ(spec.data().folder(), "data/elpv cells");
  EXPECT_THAT(spec.data().classes(), testing::ElementsAre("good", "bad"));
  EXPECT_EQ(spec.data().bad_files(), v1::SKIP);
  EXPECT_TRUE(spec.data().has_max_bad_fraction());
  EXPECT_EQ(spec.data().max_bad_fraction(), 0);
  EXPECT_THAT(spec.data().mean(), testing::ElementsAre(0.25f, 0.1f));
  EXPECT_EQ(spec.data().cache_bytes(), UINT64_MAX);
  EXPECT_TRUE(spec.data().augment().horizontal_flip());
  EXPECT_FALSE(spec.data().augment().vertical_flip());
  EXPECT_EQ(spec.training().epochs(), 12u);
  EXPECT_EQ(spec.training().precision(), v1::BF16);
  EXPECT_DOUBLE_EQ(spec.training().optimizer().learning_rate(), 3e-4);
  EXPECT_DOUBLE_EQ(spec.training().optimizer().clip_norm(), 0.5);
  EXPECT_TRUE(spec.has_evaluation());
  EXPECT_FALSE(spec.has_parallel());
}

TEST(MessageFromYamlTest, ReadsWhatProtobufPrintsAsJson) {
  JobSpec spec;
  spec.set_name("a-job");
  spec.mutable_data()->set_manifest("/srv/\"odd\"\\päth\n.csv");
  spec.mutable_data()->set_split_seed(1ull << 63);
  spec.mutable_data()->add_classes("ü");
  spec.mutable_training()->set_steps(3);
  spec.mutable_training()->mutable_optimizer()->set_weight_decay(0);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  for (const bool spaced : {false, true}) {
    options.add_whitespace = spaced;
    std::string json;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(spec, &json, options).ok());
    JobSpec again;
    const absl::Status read = MessageFromYaml(json, &again);
    ASSERT_TRUE(read.ok()) << read << "\n" << json;
    EXPECT_EQ(again.name(), spec.name());
    EXPECT_EQ(again.data().manifest(), spec.data().manifest());
    EXPECT_EQ(again.data().split_seed(), spec.data().split_seed());
    EXPECT_EQ(again.data().classes(0), "ü");
    EXPECT_EQ(again.training().steps(), 3u);
  }
}

TEST(MessageFromYamlTest, ReadsMapsAndBytes) {
  google::protobuf::Struct map;
  ASSERT_TRUE(MessageFromYaml("fields: {a: {number_value: 2}, b: {bool_value: true}}", &map).ok());
  EXPECT_EQ(map.fields().at("a").number_value(), 2);
  EXPECT_TRUE(map.fields().at("b").bool_value());
  v1::StoreRequest request;
  ASSERT_TRUE(MessageFromYaml("set: aGk=", &request).ok());
  EXPECT_EQ(request.set(), "hi");
}

TEST(MessageFromYamlTest, NamesLineKeyValueAndWhatWouldBeRight) {
  struct Case {
    const char* name;
    std::string text;
    const char* want;  // A part of the message.
  };
  const Case cases[] = {
      {"unknown key", "name: a\ntraining:\n  global_bach: 8\n",
       "f.yaml:3: training.global_bach: unknown key, did you mean \"global_batch\"? Known keys: "
       "epochs, steps, global_batch"},
      {"unknown top key", "nmae: a", "f.yaml:1: nmae: unknown key, did you mean \"name\"?"},
      {"camel case", "training: {globalBatch: 3}", "did you mean \"global_batch\"?"},
      {"key of a section", "epochs: 3", "epochs: unknown key, did you mean \"training.epochs\"?"},
      {"key of a section's section", "learning_rate: 3",
       "did you mean \"training.optimizer.learning_rate\"?"},
      {"duplicate", "name: a\npriority: 1\nname: b",
       "f.yaml:3: name: given twice, first in line 1; keep one"},
      {"both of a oneof", "data: {folder: a, manifest: b}",
       "data.manifest: cannot stand beside folder; keep one of them"},
      {"word for a number", "priority: high",
       "f.yaml:1: priority: \"high\" is not right; expected a whole number from -2147483648 to "
       "2147483647"},
      {"fraction for a whole number", "training: {epochs: 1.5}",
       "training.epochs: \"1.5\" is not right; expected a whole number from 0 to 4294967295"},
      {"exponent", "training: {epochs: 1e3}", "\"1e3\" is not right"},
      {"octal", "training: {epochs: 010}", "\"010\" is not right"},
      {"hexadecimal", "training: {epochs: 0x10}", "\"0x10\" is not right"},
      {"space in a number", "training: {epochs: \" 1\"}", "\" 1\" is not right"},
      {"negative for unsigned", "training: {epochs: -1}", "\"-1\" is not right; expected a whole"},
      {"too large for 32 bits", "training: {epochs: 4294967296}", "\"4294967296\" is not right"},
      {"too large for 64 bits", "training: {seed: 18446744073709551616}",
       "expected a whole number from 0 to 18446744073709551615"},
      {"not finite", "training: {optimizer: {eps: .nan}}", "expected a finite number"},
      {"infinite", "training: {optimizer: {eps: inf}}", "expected a finite number"},
      {"too large a double", "training: {optimizer: {eps: 1e999}}", "expected a finite number"},
      {"too large a float", "data: {mean: [1e39]}", "data.mean[0]: \"1e39\" is not right"},
      {"bad number", "training: {optimizer: {learning_rate: 3e-}}",
       "training.optimizer.learning_rate: \"3e-\" is not right; expected a finite number"},
      {"comma in a number", "model:\n  drop_path_rate: 0,1\n", "f.yaml:2: model.drop_path_rate"},
      {"yes for true", "data: {augment: {rotate_90: yes}}",
       "\"yes\" is not right; expected true or false"},
      {"enum", "training: {precision: fp16}",
       "training.precision: \"fp16\" is not right; expected one of FP32, BF16"},
      {"enum by number", "training: {precision: 1}", "expected one of FP32, BF16"},
      {"text for a section", "data: /srv/images",
       "data: \"/srv/images\" where keys are expected: folder, manifest"},
      {"list for a section", "data: [a]", "data: a list where keys are expected: folder"},
      {"list for text", "name: [a, b]", "name: a list is not right; expected text"},
      {"mapping for a number", "priority: {a: 1}", "priority: a mapping is not right; expected a"},
      {"text for a list", "data:\n  classes: good",
       "f.yaml:2: data.classes: \"good\" is not right; expected a list, each item text"},
      {"wrong item", "data: {mean: [0.5, x]}", "data.mean[1]: \"x\" is not right"},
      {"nothing for a scalar", "name:\n", "name: nothing is not right; expected text"},
      {"null for a scalar", "name: ~\n", "name: nothing is not right; expected text"},
      {"not a mapping", "- a\n- b", "f.yaml:1: a list where keys are expected: name, tenant"},
      {"only text", "hello", "f.yaml:1: \"hello\" where keys are expected: name"},
      {"empty", "", "f.yaml:1: empty; expected keys out of name"},
      {"only a comment", "# nothing\n", "f.yaml:1: empty"},
      {"two documents", "name: a\n---\nname: b\n", "more than one document"},
      {"anchor", "name: &n a\n", "f.yaml:1: anchors (&name) are not supported"},
      {"alias", "name: *n\n", "f.yaml:1: "},
      {"tag", "name: !!str a\n", "tags are not supported"},
      {"key is a list", "? [a]\n: 1\n", "a key must be a word"},
      {"key is missing", ": 1\n", "a key is missing"},
      {"broken flow", "data: {folder: a\n", "not valid YAML or JSON"},
      {"tab indentation", "data:\n\tfolder: a\n", "f.yaml:2: not valid YAML or JSON"},
      {"broken JSON", "{\"name\": \"a\",, }", "f.yaml:1: "},
      {"not UTF-8", "name: a\ndata: {folder: \"\xff\"}", "f.yaml:2: not UTF-8 text"},
      {"cut UTF-8", "name: \xe2\x82", "f.yaml:1: not UTF-8 text"},
      {"surrogate", "name: \xed\xa0\x80", "not UTF-8 text"},
      {"zero byte", std::string("name: a\0b", 9), "not UTF-8 text"},
      {"long value", "priority: " + std::string(500, 'x'), "xxx…\" is not right"},
      {"value with a line break", "priority: \"a\\nb\"", "priority: \"a b\" is not right"},
      {"key with a line break", "\"a\\nb\": 1", "a b: unknown key"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    JobSpec spec;
    spec.set_name("before");
    const absl::Status read = MessageFromYaml(c.text, &spec, "f.yaml");
    EXPECT_EQ(read.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(read.message()), HasSubstr(c.want));
    EXPECT_EQ(std::string(read.message()).find('\n'), std::string::npos) << read;
    EXPECT_EQ(spec.name(), "before");
  }
}

TEST(MessageFromYamlTest, IsBounded) {
  JobSpec spec;
  const std::string deep = "a: " + std::string(400, '[') + std::string(400, ']');
  EXPECT_THAT(std::string(MessageFromYaml(deep, &spec).message()), HasSubstr("deeper than 32"));
  EXPECT_FALSE(MessageFromYaml(std::string(100'000, '['), &spec).ok());
  std::string bomb = "a: &a [x]\n";
  for (int i = 0; i < 30; ++i) bomb += "b: &b [*a, *a, *a]\n";
  EXPECT_THAT(std::string(MessageFromYaml(bomb, &spec).message()), HasSubstr("anchors"));
  const std::string large = "name: " + std::string(kMaxConfigBytes, 'a');
  EXPECT_THAT(std::string(MessageFromYaml(large, &spec).message()), HasSubstr("larger than"));
}

class MessageFromFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "configXXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  std::string folder_;
};

TEST_F(MessageFromFileTest, NamesThePath) {
  JobSpec spec;
  EXPECT_TRUE(MessageFromFile(Write("a.yaml", "name: a"), &spec).ok());
  EXPECT_EQ(spec.name(), "a");

  const std::string bad = Write("b.yaml", "\n\nnmae: a");
  EXPECT_THAT(std::string(MessageFromFile(bad, &spec).message()), HasSubstr(bad + ":3: nmae"));

  const absl::Status none = MessageFromFile(folder_ + "/none.yaml", &spec);
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr(folder_ + "/none.yaml: No such file"));

  const absl::Status folder = MessageFromFile(folder_, &spec);
  EXPECT_EQ(folder.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(folder.message()), HasSubstr("Is a directory"));

  const absl::Status endless = MessageFromFile("/dev/zero", &spec);
  EXPECT_EQ(endless.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(endless.message()), HasSubstr("larger than"));
}

}  // namespace
}  // namespace tundish
