#include "server/spec/resolve.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "server/spec/presets.h"

namespace tundish::spec {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

v1::JobSpec Minimal() {
  v1::JobSpec spec;
  spec.set_name("cells");
  spec.mutable_data()->set_folder("/data/cells");
  spec.mutable_model()->set_preset("vit_cell");
  spec.mutable_training()->set_epochs(3);
  spec.mutable_training()->set_global_batch(32);
  return spec;
}

TEST(ResolveSpecTest, FillsEveryDefaultOfAMinimalSpec) {
  const auto spec = ResolveSpec(Minimal());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->tenant(), "default");
  EXPECT_EQ(spec->data().validation_fraction(), 0.2);
  EXPECT_EQ(spec->data().bad_files(), v1::FAIL);
  EXPECT_FALSE(spec->data().has_max_bad_fraction());
  EXPECT_EQ(spec->data().augment().min_crop_area(), 1);
  ASSERT_EQ(spec->data().mean_size(), 1);
  EXPECT_EQ(spec->data().mean(0), 0.5f);
  EXPECT_EQ(spec->data().cache_bytes(), 268435456u);
  EXPECT_EQ(spec->model().image_size(), 128);
  EXPECT_EQ(spec->model().patch_size(), 16);
  EXPECT_EQ(spec->model().hidden(), 192);
  EXPECT_EQ(spec->model().depth(), 6);
  EXPECT_EQ(spec->model().heads(), 4);
  EXPECT_EQ(spec->model().mlp_hidden(), 768);
  EXPECT_EQ(spec->model().channels(), 1);
  EXPECT_EQ(spec->model().pooling(), v1::CLASS_TOKEN);
  EXPECT_EQ(spec->model().layer_norm_eps(), 1e-6);
  EXPECT_EQ(spec->parallel().tensor(), 1);
  EXPECT_EQ(spec->parallel().data(), 1);
  EXPECT_EQ(spec->parallel().device(), "cpu");
  EXPECT_EQ(spec->parallel().threads_per_rank(), 1);
  EXPECT_EQ(spec->training().micro_batch(), 32u);
  EXPECT_EQ(spec->training().precision(), v1::FP32);
  EXPECT_EQ(spec->training().optimizer().learning_rate(), 3e-5);
  EXPECT_EQ(spec->training().optimizer().weight_decay(), 0.05);
  EXPECT_EQ(spec->training().optimizer().beta1(), 0.9);
  EXPECT_EQ(spec->training().optimizer().beta2(), 0.999);
  EXPECT_EQ(spec->training().optimizer().eps(), 1e-8);
  EXPECT_EQ(spec->training().optimizer().clip_norm(), 1.0);
  EXPECT_EQ(spec->training().schedule().kind(), v1::COSINE);
  EXPECT_FALSE(spec->training().schedule().has_warmup_steps());
  EXPECT_EQ(spec->training().class_weights(), v1::NONE);
  EXPECT_EQ(spec->evaluation().every_epochs(), 1u);
  EXPECT_EQ(spec->checkpoints().keep_last(), 2u);
  EXPECT_EQ(spec->recovery().max_failures(), 20u);
  EXPECT_EQ(spec->recovery().step_deadline_seconds(), 300u);
  EXPECT_TRUE(spec->recovery().shrink());
  EXPECT_EQ(spec->recovery().min_data(), 1u);
  EXPECT_EQ(spec->recovery().wait_seconds(), 60u);
  EXPECT_EQ(spec->recovery().warm_spares(), 1u);
}

TEST(ResolveSpecTest, ResolvingTwiceChangesNothing) {
  for (const std::string& preset : PresetNames()) {
    SCOPED_TRACE(preset);
    v1::JobSpec in = Minimal();
    in.mutable_model()->set_preset(preset);
    if (preset.ends_with("32")) in.mutable_model()->set_hidden(96 * 16);
    if (preset.ends_with("32")) in.mutable_model()->set_heads(16);
    in.mutable_data()->set_bad_files(v1::SKIP);
    const auto once = ResolveSpec(in);
    ASSERT_TRUE(once.ok()) << once.status();
    const auto twice = ResolveSpec(*once);
    ASSERT_TRUE(twice.ok()) << twice.status();
    EXPECT_TRUE(MessageDifferencer::Equals(*once, *twice)) << SpecDifference(*once, *twice);
    EXPECT_EQ(SpecHash(*once), SpecHash(*twice));
  }
}

TEST(ResolveSpecTest, KeepsExplicitZeros) {
  v1::JobSpec in = Minimal();
  in.mutable_data()->set_validation_fraction(0);
  in.mutable_data()->set_cache_bytes(0);
  in.mutable_training()->mutable_optimizer()->set_weight_decay(0);
  in.mutable_training()->mutable_optimizer()->set_clip_norm(0);
  in.mutable_training()->mutable_schedule()->set_warmup_steps(0);
  in.mutable_evaluation()->set_every_epochs(0);
  in.mutable_recovery()->set_max_failures(0);
  const auto spec = ResolveSpec(in);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->data().validation_fraction(), 0);
  EXPECT_EQ(spec->data().cache_bytes(), 0u);
  EXPECT_EQ(spec->training().optimizer().weight_decay(), 0);
  EXPECT_EQ(spec->training().optimizer().clip_norm(), 0);
  EXPECT_TRUE(spec->training().schedule().has_warmup_steps());
  EXPECT_EQ(spec->evaluation().every_epochs(), 0u);
  EXPECT_EQ(spec->recovery().max_failures(), 0u);
}

TEST(ResolveSpecTest, OverridesPartsOfAPreset) {
  v1::JobSpec in = Minimal();
  in.mutable_model()->set_preset("vit_base_patch16");
  in.mutable_model()->set_image_size(384);
  in.mutable_model()->set_hidden(512);
  in.mutable_model()->set_heads(8);
  in.mutable_training()->set_global_batch(33);
  in.mutable_parallel()->set_data(2);
  in.mutable_training()->clear_epochs();
  in.mutable_training()->set_steps(1019);
  const auto spec = ResolveSpec(in);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model().image_size(), 384);
  EXPECT_EQ(spec->model().depth(), 12);
  EXPECT_EQ(spec->model().mlp_hidden(), 2048);
  EXPECT_EQ(spec->training().micro_batch(), 17u);
  EXPECT_EQ(spec->training().schedule().warmup_steps(), 50u);
}

struct WrongCase {
  const char* name;
  std::function<void(v1::JobSpec&)> spoil;
  const char* field;
  const char* message;
};

const WrongCase kWrongCases[] = {
    {"no name", [](auto& s) { s.clear_name(); }, "name", "name is missing"},
    {"capital", [](auto& s) { s.set_name("Cells"); }, "name", "name=Cells: expected 1 to 63"},
    {"64 long", [](auto& s) { s.set_name(std::string(64, 'a')); }, "name", "1 to 63"},
    {"tenant", [](auto& s) { s.set_tenant("9"); }, "tenant", "tenant=9"},
    {"priority", [](auto& s) { s.set_priority(1001); }, "priority", "-1000 to 1000"},
    {"no data", [](auto& s) { s.clear_data(); }, "data", "data is missing: expected folder"},
    {"relative", [](auto& s) { s.mutable_data()->set_folder("cells"); }, "data.folder",
     "data.folder=cells: expected an absolute path"},
    {"empty folder", [](auto& s) { s.mutable_data()->set_folder(""); }, "data.folder",
     "data.folder is missing"},
    {"NUL", [](auto& s) { s.mutable_data()->set_folder(std::string("/a\0b", 4)); }, "data.folder",
     "/a?b"},
    {"manifest kind", [](auto& s) { s.mutable_data()->set_manifest("/a.xlsx"); }, "data.manifest",
     ".csv or .jsonl"},
    {"fraction", [](auto& s) { s.mutable_data()->set_validation_fraction(0.95); },
     "data.validation_fraction", "0.95: expected 0 to 0.9"},
    {"NaN", [](auto& s) { s.mutable_data()->set_validation_fraction(std::nan("")); },
     "data.validation_fraction", "nan"},
    {"one class", [](auto& s) { s.mutable_data()->add_classes("ok"); }, "data.classes",
     "1 names: expected none"},
    {"class twice",
     [](auto& s) {
       s.mutable_data()->add_classes("ok");
       s.mutable_data()->add_classes("ok");
     },
     "data.classes", "each name once"},
    {"policy", [](auto& s) { s.mutable_data()->set_bad_files(static_cast<v1::BadFilePolicy>(9)); },
     "data.bad_files", "9: expected FAIL or SKIP"},
    {"share without skip", [](auto& s) { s.mutable_data()->set_max_bad_fraction(0.1); },
     "data.max_bad_fraction", "SKIP"},
    {"crop", [](auto& s) { s.mutable_data()->mutable_augment()->set_min_crop_area(2); },
     "data.augment.min_crop_area", "0.01 to 1"},
    {"means",
     [](auto& s) {
       for (int i = 0; i < 3; ++i) s.mutable_data()->add_mean(0.5);
     },
     "data.mean", "3 values: expected one value"},
    {"std 0", [](auto& s) { s.mutable_data()->add_std(0); }, "data.std", "0.001 to 10"},
    {"preset", [](auto& s) { s.mutable_model()->set_preset("vit_giant"); }, "model.preset",
     "vit_huge_patch14"},
    {"no model", [](auto& s) { s.clear_model(); }, "model", "model is missing: expected a preset"},
    {"size", [](auto& s) { s.mutable_model()->set_image_size(130); }, "model.image_size",
     "a multiple of model.patch_size=16, e.g. 128"},
    {"below one patch", [](auto& s) { s.mutable_model()->set_image_size(8); }, "model.image_size",
     "e.g. 16"},
    {"negative size", [](auto& s) { s.mutable_model()->set_image_size(-16); }, "model.image_size",
     "-16"},
    {"tokens",
     [](auto& s) {
       s.mutable_model()->set_image_size(4096);
       s.mutable_model()->set_patch_size(1);
     },
     "model.patch_size", "these are 16777216"},
    {"hidden", [](auto& s) { s.mutable_model()->set_hidden(190); }, "model.hidden",
     "a multiple of model.heads=4"},
    {"heads by tensor", [](auto& s) { s.mutable_parallel()->set_tensor(3); }, "model.heads",
     "model.heads=4 does not divide by parallel.tensor=3: use a tensor of 1, 2 or 4"},
    {"mlp by tensor",
     [](auto& s) {
       s.mutable_model()->set_mlp_hidden(102);
       s.mutable_parallel()->set_tensor(4);
     },
     "model.mlp_hidden", "use a tensor of 1 or 2"},
    {"channels", [](auto& s) { s.mutable_model()->set_channels(4); }, "model.channels", "1 (grey)"},
    {"weights", [](auto& s) { s.mutable_model()->set_weights("/w.pth"); }, "model.weights",
     ".safetensors"},
    {"tensor", [](auto& s) { s.mutable_parallel()->set_tensor(-1); }, "parallel.tensor", "-1"},
    {"ranks",
     [](auto& s) {
       s.mutable_parallel()->set_tensor(4);
       s.mutable_parallel()->set_data(2000);
       s.mutable_training()->set_global_batch(2000);
     },
     "parallel.data", "these are 8000"},
    {"huge degrees",
     [](auto& s) {
       s.mutable_parallel()->set_tensor(std::numeric_limits<int>::max());
       s.mutable_parallel()->set_data(std::numeric_limits<int>::max());
     },
     "parallel.data", "1 to 4096"},
    {"device", [](auto& s) { s.mutable_parallel()->set_device("gpu"); }, "parallel.device",
     "cpu or cuda"},
    {"threads", [](auto& s) { s.mutable_parallel()->set_threads_per_rank(257); },
     "parallel.threads_per_rank", "257"},
    {"both lengths", [](auto& s) { s.mutable_training()->set_steps(5); }, "training",
     "epochs 3 and steps 5: expected exactly one"},
    {"no length", [](auto& s) { s.mutable_training()->clear_epochs(); }, "training",
     "exactly one of epochs and steps"},
    {"no batch", [](auto& s) { s.mutable_training()->clear_global_batch(); },
     "training.global_batch", "global_batch=0: expected 1 to 1048576"},
    {"batch below replicas",
     [](auto& s) {
       s.mutable_training()->set_global_batch(2);
       s.mutable_parallel()->set_data(3);
     },
     "training.global_batch", "parallel.data=3"},
    {"micro-batch", [](auto& s) { s.mutable_training()->set_micro_batch(33); },
     "training.micro_batch", "1 to 32 (global_batch 32 over 1 replicas)"},
    {"rate", [](auto& s) { s.mutable_training()->mutable_optimizer()->set_learning_rate(-1); },
     "training.optimizer.learning_rate", "more than 0"},
    {"beta", [](auto& s) { s.mutable_training()->mutable_optimizer()->set_beta2(1); },
     "training.optimizer.beta2", "below 1"},
    {"warm-up",
     [](auto& s) {
       s.mutable_training()->clear_epochs();
       s.mutable_training()->set_steps(10);
       s.mutable_training()->mutable_schedule()->set_warmup_steps(11);
     },
     "training.schedule.warmup_steps", "0 to 10"},
    {"smoothing", [](auto& s) { s.mutable_training()->set_label_smoothing(0.6f); },
     "training.label_smoothing", "0 to 0.5"},
    {"keep", [](auto& s) { s.mutable_checkpoints()->set_keep_last(1001); }, "checkpoints.keep_last",
     "1 to 1000"},
    {"replicas", [](auto& s) { s.mutable_recovery()->set_min_data(2); }, "recovery.min_data",
     "1 to 1"},
    {"wait", [](auto& s) { s.mutable_recovery()->set_wait_seconds(90000); },
     "recovery.wait_seconds", "1 to 86400"},
    {"deadline", [](auto& s) { s.mutable_recovery()->set_step_deadline_seconds(90000); },
     "recovery.step_deadline_seconds", "1 to 86400"},
    {"spares", [](auto& s) { s.mutable_recovery()->set_warm_spares(9); }, "recovery.warm_spares",
     "0 to 8"},
};

TEST(ValidateTest, NamesTheWrongFieldAndWhatWouldBeRight) {
  for (const WrongCase& c : kWrongCases) {
    SCOPED_TRACE(c.name);
    v1::JobSpec spec = Minimal();
    c.spoil(spec);
    const ValidationResult result = Validate(spec);
    ASSERT_FALSE(result.invalid.empty());
    const absl::Status status = result.ToStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    bool named = false;
    for (const v1::InvalidField& field : result.invalid) named |= field.field() == c.field;
    EXPECT_TRUE(named) << status;
  }
}

TEST(ValidateTest, ListsEveryViolationAtOnce) {
  v1::JobSpec spec = Minimal();
  spec.set_name("-");
  spec.mutable_parallel()->set_tensor(3);
  spec.mutable_training()->clear_epochs();
  const ValidationResult result = Validate(spec);
  ASSERT_EQ(result.invalid.size(), 3u) << result.ToStatus();
  EXPECT_EQ(result.invalid[0].field(), "name");
  EXPECT_EQ(result.invalid[1].field(), "model.heads");
  EXPECT_EQ(result.invalid[1].value(), "4");
  EXPECT_EQ(result.invalid[2].field(), "training");
}

TEST(ValidateTest, AnEmptySpecSaysOneThingPerMissingPart) {
  const ValidationResult result = Validate(v1::JobSpec());
  std::vector<std::string> fields;
  for (const v1::InvalidField& field : result.invalid) fields.push_back(field.field());
  EXPECT_THAT(fields,
              ::testing::ElementsAre("name", "data", "model", "training", "training.global_batch"));
}

TEST(TotalStepsTest, RoundsUpOverAllEpochs) {
  struct Case {
    std::uint32_t epochs, steps, batch, images, want;
  };
  for (const Case& c : {Case{3, 0, 32, 100, 10}, Case{1, 0, 32, 32, 1}, Case{1, 0, 32, 33, 2},
                        Case{0, 7, 32, 1, 7}, Case{100000, 0, 1048576, 4000000000u, 381469727}}) {
    v1::JobSpec spec = Minimal();
    spec.mutable_training()->set_epochs(c.epochs);
    spec.mutable_training()->set_steps(c.steps);
    spec.mutable_training()->set_global_batch(c.batch);
    const auto steps = TotalSteps(spec, c.images);
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(*steps, c.want);
  }
  v1::JobSpec spec = Minimal();
  EXPECT_EQ(TotalSteps(spec, 0).status().code(), absl::StatusCode::kInvalidArgument);
  spec.mutable_training()->set_epochs(100000);
  spec.mutable_training()->set_global_batch(1);
  EXPECT_EQ(TotalSteps(spec, 100000).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SpecDifferenceTest, NamesTheFirstFieldWithBothValues) {
  struct Case {
    std::function<void(v1::JobSpec&)> change;
    const char* want;
  };
  const Case cases[] = {
      {[](auto& s) {}, ""},
      {[](auto& s) { s.mutable_training()->set_seed(1); }, "training.seed is 1, was 0"},
      {[](auto& s) { s.mutable_data()->set_manifest("/b.csv"); },
       "data.folder is unset, was /data/cells"},
      {[](auto& s) { s.mutable_training()->set_precision(v1::BF16); },
       "training.precision is BF16, was FP32"},
      {[](auto& s) { s.mutable_data()->add_classes("ok"); }, "data.classes is [ok], was []"},
      {[](auto& s) { s.mutable_training()->mutable_schedule()->set_warmup_steps(0); },
       "training.schedule.warmup_steps is 0, was unset"},
      {[](auto& s) { s.mutable_model()->set_drop_path_rate(0.1f); },
       "model.drop_path_rate is 0.1, was 0"},
  };
  const v1::JobSpec before = *ResolveSpec(Minimal());
  for (const Case& c : cases) {
    v1::JobSpec now = before;
    c.change(now);
    EXPECT_EQ(SpecDifference(before, now), c.want);
    EXPECT_EQ(SpecHash(before) == SpecHash(now), std::string(c.want).empty());
  }
}

TEST(PresetsTest, ShapesOfThePapers) {
  struct Case {
    const char* name;
    int hidden, depth, heads, patch;
  };
  for (const Case& c :
       {Case{"vit_tiny_patch16", 192, 12, 3, 16}, Case{"vit_small_patch8", 384, 12, 6, 8},
        Case{"vit_base_patch32", 768, 12, 12, 32}, Case{"vit_large_patch16", 1024, 24, 16, 16},
        Case{"vit_huge_patch14", 1280, 32, 16, 14}}) {
    const auto model = FindPreset(c.name);
    ASSERT_TRUE(model) << c.name;
    EXPECT_EQ(model->hidden(), c.hidden);
    EXPECT_EQ(model->depth(), c.depth);
    EXPECT_EQ(model->heads(), c.heads);
    EXPECT_EQ(model->patch_size(), c.patch);
    EXPECT_EQ(model->image_size(), 224);
    EXPECT_EQ(model->mlp_hidden(), 4 * c.hidden);
  }
  EXPECT_EQ(PresetNames().size(), 21u);
  EXPECT_FALSE(FindPreset("vit_tiny_patch15"));
  EXPECT_FALSE(FindPreset(""));
}

}  // namespace
}  // namespace tundish::spec
