#include "worker/rank/session.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/worker/engine/trainer/cluster.h"

namespace tundish::rank {
namespace {

using testing::MemoryStore;
using testing::SharedTable;

/// A session on a thread of its own, with its reports.
class SessionTest : public ::testing::Test {
 protected:
  explicit SessionTest(bool spare = false)
      : session_({.report =
                      [this](v1::RankReport report) {
                        const std::lock_guard lock(mutex_);
                        reports_.push_back(std::move(report));
                        changed_.notify_all();
                      },
                  .make_store =
                      [](uint32_t) {
                        return c10::make_intrusive<MemoryStore>(std::make_shared<SharedTable>());
                      }}),
        thread_([this, spare] { session_.Run(v1::Ready(), spare); }) {
    testing::WriteTinyImages(images_.path(), 12);
  }
  ~SessionTest() override {
    v1::RankOrder order;
    order.mutable_exit();
    session_.OnOrder(order);
    thread_.join();
  }

  v1::RankOrder Assignment(uint32_t job_epoch) {
    const v1::JobSpec spec = testing::TinySpec(images_.path(), 1, 1);
    const auto dataset = data::Dataset::Scan(spec.data());
    v1::RankOrder order;
    order.set_job_epoch(job_epoch);
    v1::Assignment& assignment = *order.mutable_assign();
    assignment.add_members()->add_devices("cpu:0");
    *assignment.mutable_spec() = spec;
    for (const std::string& name : dataset->classes()) assignment.mutable_data()->add_classes(name);
    assignment.mutable_data()->set_train_images(static_cast<uint32_t>(dataset->train().size()));
    assignment.mutable_data()->set_manifest_hash(dataset->ManifestHash());
    assignment.set_total_steps(6);
    assignment.set_artifact_root(artifacts_.path());
    assignment.set_job_folder("job");
    assignment.mutable_start()->mutable_fresh();
    return order;
  }

  void Stop(uint32_t job_epoch) {
    v1::RankOrder order;
    order.set_job_epoch(job_epoch);
    order.mutable_stop();
    session_.OnOrder(order);
  }

  // The report number `nth` (from 0) of a kind, waiting for it; an empty one after 20 s.
  v1::RankReport WaitFor(v1::RankReport::BodyCase kind, size_t nth = 0) {
    v1::RankReport found;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] {
      size_t seen = 0;
      for (const v1::RankReport& report : reports_) {
        if (report.body_case() != kind || seen++ != nth) continue;
        found = report;
        return true;
      }
      return false;
    });
    EXPECT_EQ(found.body_case(), kind);
    return found;
  }

  size_t Count(v1::RankReport::BodyCase kind) {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count_if(
        reports_, [&](const v1::RankReport& report) { return report.body_case() == kind; }));
  }

  const testing::TemporaryFolder images_;
  const testing::TemporaryFolder artifacts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::RankReport> reports_;
  Session session_;
  std::thread thread_;
};

TEST_F(SessionTest, TrainsStopsAndGoesOnFromWhatItHolds) {
  WaitFor(v1::RankReport::kReady);
  session_.OnOrder(Assignment(1));
  const v1::RankReport finished = WaitFor(v1::RankReport::kFinished);
  EXPECT_EQ(finished.job_epoch(), 1U);
  EXPECT_EQ(finished.finished().model().path(), "job/export/e1/model.safetensors");
  EXPECT_EQ(finished.finished().model().sha256().size(), 64U);
  EXPECT_EQ(Count(v1::RankReport::kFormed), 1U);
  EXPECT_EQ(Count(v1::RankReport::kStep), 6U);
  EXPECT_EQ(WaitFor(v1::RankReport::kStep, 5).step().step(), 5U);

  Stop(1);
  const v1::Stopped stopped = WaitFor(v1::RankReport::kStopped).stopped();
  EXPECT_TRUE(stopped.has_state());
  EXPECT_EQ(stopped.step(), 6U);
  EXPECT_EQ(stopped.phase(), v1::COMPUTING);
  EXPECT_TRUE(stopped.has_committed_sums());
  EXPECT_EQ(stopped.cause(), "");
  Stop(1);
  WaitFor(v1::RankReport::kStopped, 1);  // Asked again, answered again.

  session_.OnOrder(Assignment(1));  // Of the stopped epoch: ignored.
  v1::RankOrder keep = Assignment(2);
  keep.mutable_assign()->mutable_start()->set_step(6);
  keep.mutable_assign()->mutable_start()->mutable_keep();
  session_.OnOrder(keep);
  EXPECT_EQ(WaitFor(v1::RankReport::kFinished, 1).job_epoch(), 2U);
  EXPECT_EQ(WaitFor(v1::RankReport::kFormed, 1).formed().step(), 6U);
  EXPECT_EQ(Count(v1::RankReport::kStep), 6U);
  EXPECT_EQ(Count(v1::RankReport::kFormed), 2U);
}

TEST_F(SessionTest, YieldsWhenAskedBeforeItHasBegunAndSavesWhatItHolds) {
  v1::RankOrder yield;
  yield.set_job_epoch(1);
  yield.mutable_yield();
  session_.OnOrder(yield);
  session_.OnOrder(Assignment(1));
  const v1::Stopped agreed = WaitFor(v1::RankReport::kStopped).stopped();
  EXPECT_TRUE(agreed.agreed());
  EXPECT_EQ(agreed.step(), 1U);
  EXPECT_EQ(agreed.cause(), "");
  EXPECT_EQ(Count(v1::RankReport::kFinished), 0U);

  v1::RankOrder save;
  save.set_job_epoch(2);
  save.mutable_save()->mutable_start()->set_step(1);
  save.mutable_save()->mutable_start()->mutable_keep();
  save.mutable_save()->set_artifact_root(artifacts_.path());
  save.mutable_save()->set_job_folder("job");
  session_.OnOrder(save);
  const v1::RankReport saved = WaitFor(v1::RankReport::kStopped, 1);
  EXPECT_TRUE(saved.stopped().saved());
  EXPECT_FALSE(saved.stopped().agreed());
  EXPECT_EQ(saved.job_epoch(), 2U);
  const v1::RankReport written = WaitFor(v1::RankReport::kCheckpoint);
  EXPECT_EQ(written.job_epoch(), 2U);
  EXPECT_EQ(written.checkpoint().path(), "job/checkpoints/e2-step1");

  v1::RankOrder load = Assignment(2);
  load.mutable_assign()->mutable_start()->set_step(1);
  load.mutable_assign()->mutable_start()->mutable_checkpoint()->set_path(
      written.checkpoint().path());
  session_.OnOrder(load);
  session_.OnOrder(save);  // too late: that job_epoch has begun
  WaitFor(v1::RankReport::kFinished);
  EXPECT_EQ(Count(v1::RankReport::kStopped), 2U);
  EXPECT_EQ(Count(v1::RankReport::kStep), 6U);
}

TEST_F(SessionTest, WaitsForAnotherCheckpointWhenOneCannotBeRead) {
  v1::RankOrder order = Assignment(1);
  order.mutable_assign()->mutable_start()->set_step(3);
  order.mutable_assign()->mutable_start()->mutable_checkpoint()->set_path("job/checkpoints/gone");
  session_.OnOrder(order);
  EXPECT_EQ(WaitFor(v1::RankReport::kFailed).failed().reason(), "checkpoint_unreadable");
  Stop(1);
  EXPECT_FALSE(WaitFor(v1::RankReport::kStopped).stopped().has_state());
  session_.OnOrder(Assignment(2));
  EXPECT_EQ(WaitFor(v1::RankReport::kFinished).job_epoch(), 2U);
}

/// One more session in a test.
class Cold : public SessionTest {
 public:
  using SessionTest::session_;
  using SessionTest::WaitFor;

 private:
  void TestBody() override {}
};

/// A session that stands by.
class SpareTest : public SessionTest {
 protected:
  SpareTest() : SessionTest(true) {}

  void Prepare(const v1::Assignment& assignment) {
    v1::RankOrder order;
    *order.mutable_prepare()->mutable_spec() = assignment.spec();
    *order.mutable_prepare()->mutable_data() = assignment.data();
    session_.OnOrder(order);
  }
  void Become() {
    v1::RankOrder order;
    order.mutable_become();
    session_.OnOrder(order);
  }
};

TEST_F(SpareTest, StandsByAndThenTrainsLikeAnyRank) {
  const v1::RankOrder assignment = Assignment(3);
  Prepare(assignment.assign());
  Become();
  WaitFor(v1::RankReport::kReady);
  EXPECT_EQ(Count(v1::RankReport::kReady), 1U) << "before it became a worker";
  session_.OnOrder(assignment);
  const v1::RankReport finished = WaitFor(v1::RankReport::kFinished);
  EXPECT_EQ(finished.job_epoch(), 3U);

  Cold cold;
  cold.session_.OnOrder(assignment);
  EXPECT_EQ(cold.WaitFor(v1::RankReport::kFinished).finished().model().sha256(),
            finished.finished().model().sha256())
      << "warming up shows in the result";
}

TEST_F(SpareTest, ServesThoughItCouldNotPrepare) {
  v1::RankOrder assignment = Assignment(1);
  v1::Assignment wrong = assignment.assign();
  wrong.mutable_data()->set_manifest_hash("0123");
  Prepare(wrong);
  Become();
  session_.OnOrder(assignment);
  WaitFor(v1::RankReport::kFinished);
}

TEST_F(SessionTest, AnswersStopBeforeAnyAssignment) {
  Stop(4);
  const v1::RankReport report = WaitFor(v1::RankReport::kStopped);
  EXPECT_EQ(report.job_epoch(), 4U);
  EXPECT_FALSE(report.stopped().has_state());
}

TEST_F(SessionTest, GivesUpWithAReason) {
  v1::RankOrder order = Assignment(1);
  order.mutable_assign()->mutable_data()->set_manifest_hash("0123");
  session_.OnOrder(order);
  const v1::RankFailed failed = WaitFor(v1::RankReport::kFailed).failed();
  EXPECT_EQ(failed.reason(), "data_changed");
  EXPECT_NE(failed.message().find("0123"), std::string::npos) << failed.message();
}

TEST_F(SessionTest, ADeviceThatDoesNotOpenFailsTheJob) {
  v1::RankOrder order = Assignment(1);
  order.mutable_assign()->mutable_spec()->mutable_parallel()->set_device("abacus");
  session_.OnOrder(order);
  const v1::RankFailed failed = WaitFor(v1::RankReport::kFailed).failed();
  EXPECT_EQ(failed.reason(), "backend_unavailable");
  EXPECT_NE(failed.message().find("abacus"), std::string::npos) << failed.message();
}

TEST_F(SessionTest, SaysHowFarItIs) {
  v1::RankOrder probe;
  probe.mutable_probe()->set_number(4);
  session_.OnOrder(probe);
  EXPECT_EQ(WaitFor(v1::RankReport::kProgress).progress().phase(), v1::PHASE_IDLE);
  session_.OnOrder(Assignment(1));
  WaitFor(v1::RankReport::kFinished);
  std::vector<v1::RankPhase> phases;
  for (size_t i = 1; i < Count(v1::RankReport::kProgress); ++i) {
    phases.push_back(WaitFor(v1::RankReport::kProgress, i).progress().phase());
  }
  const std::vector<v1::RankPhase> want = {v1::PHASE_FORMING, v1::PHASE_COPYING,
                                           v1::PHASE_STEP,    v1::PHASE_EVALUATION,
                                           v1::PHASE_STEP,    v1::PHASE_FINISHING};
  EXPECT_EQ(phases, want);
  session_.OnOrder(probe);
  const v1::Progress progress = WaitFor(v1::RankReport::kProgress, 1 + want.size()).progress();
  EXPECT_EQ(progress.probe(), 4U);
  EXPECT_EQ(progress.counter(), 6U * 7U) << "seven points of each of six steps";
}

TEST_F(SessionTest, NamesAWeightsFileThatDoesNotFit) {
  v1::RankOrder order = Assignment(1);
  order.mutable_assign()->mutable_spec()->mutable_model()->set_weights("/nonexistent.safetensors");
  session_.OnOrder(order);
  const v1::RankFailed failed = WaitFor(v1::RankReport::kFailed).failed();
  EXPECT_EQ(failed.reason(), "weights_invalid");
  EXPECT_NE(failed.message().find("/nonexistent.safetensors"), std::string::npos);
}

TEST_F(SessionTest, ALearningRateThatExplodesFailsTheJob) {
  v1::RankOrder order = Assignment(1);
  v1::OptimizerSpec& optimizer =
      *order.mutable_assign()->mutable_spec()->mutable_training()->mutable_optimizer();
  optimizer.set_learning_rate(1e30);
  optimizer.set_clip_norm(0);
  session_.OnOrder(order);
  EXPECT_EQ(WaitFor(v1::RankReport::kFailed).failed().reason(), "non_finite_loss");
}

}  // namespace
}  // namespace tundish::rank
