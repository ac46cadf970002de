#include "client/render/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/render/job_text.h"

namespace tundish::client {
namespace {

using testing::HasSubstr;
using Clock = Progress::Clock;
using std::chrono::milliseconds;

v1::JobUpdate Metric(uint32_t step) {
  v1::JobUpdate update;
  v1::MetricPoint& metric = *update.mutable_metric();
  metric.set_step(step);
  metric.set_total_steps(100);
  metric.set_data_epoch(2);
  metric.set_loss(0.5);
  metric.set_learning_rate(3e-4);
  metric.set_images_per_second(123.4);
  metric.set_eta_seconds(65);
  return update;
}

v1::JobUpdate Event(const char* type, v1::JobState state, const char* reason) {
  v1::JobUpdate update;
  update.mutable_event()->set_type(type);
  update.mutable_event()->set_state(state);
  update.mutable_event()->set_reason(reason);
  return update;
}

class ProgressTest : public testing::Test {
 protected:
  Progress Make(int columns) {
    return Progress(columns, [this](const std::string& text) { written_ += text; });
  }
  std::string Take() { return std::exchange(written_, ""); }
  const Clock::time_point start_ = Clock::time_point() + std::chrono::hours(1);
  std::string written_;
};

TEST_F(ProgressTest, SaysEverythingOfAStep) {
  EXPECT_EQ(MetricLine(Metric(4).metric()),
            "data epoch 2  step 5/100  loss 0.5000  lr 3.00e-04  123.4 images/s  ETA 1 min 05 s");
}

TEST_F(ProgressTest, PlainLinesComeOnceASecondAndBeforeEvents) {
  Progress progress = Make(0);
  progress.Show(Metric(0), start_);
  EXPECT_THAT(Take(), HasSubstr("step 1/100"));
  progress.Show(Metric(1), start_ + milliseconds(400));
  progress.Show(Metric(2), start_ + milliseconds(900));
  EXPECT_EQ(Take(), "");
  progress.Show(Event("state_changed", v1::RECOVERING, "rank_killed_by_signal_9"),
                start_ + milliseconds(950));
  const std::string lines = Take();
  EXPECT_THAT(lines, HasSubstr("step 3/100"));
  EXPECT_THAT(lines, HasSubstr("RECOVERING rank_killed_by_signal_9\n"));
  EXPECT_EQ(lines.find("step 2/100"), std::string::npos);
  progress.Show(Metric(3), start_ + milliseconds(1100));
  EXPECT_THAT(Take(), HasSubstr("step 4/100"));
  progress.Show(Metric(4), start_ + milliseconds(1200));
  progress.Finish();
  EXPECT_THAT(Take(), HasSubstr("step 5/100"));
  progress.Finish();
  EXPECT_EQ(Take(), "");
}

TEST_F(ProgressTest, ATerminalHasOneUpdatingLine) {
  Progress progress = Make(20);
  progress.Show(Metric(0), start_);
  EXPECT_EQ(Take(), "\r\x1b[Kdata epoch 2  step ");
  progress.Show(Metric(1), start_);
  EXPECT_EQ(Take(), "\r\x1b[Kdata epoch 2  step ");
  progress.Show(Event("state_changed", v1::SUCCEEDED, "all_ranks_finished"), start_);
  EXPECT_EQ(Take(), "\n          SUCCEEDED all_ranks_finished\n");
  progress.Finish();
  EXPECT_EQ(Take(), "");
}

TEST_F(ProgressTest, LeavesLogsToTheLogs) {
  Progress progress = Make(0);
  v1::JobUpdate log;
  log.mutable_log()->set_text("hello");
  log.mutable_log()->set_level("info");
  progress.Show(log, start_);
  EXPECT_EQ(Take(), "");
  log.mutable_log()->set_level("warning");
  progress.Show(log, start_);
  EXPECT_THAT(Take(), HasSubstr("warning [dp 0 tp 0] hello\n"));
}

TEST(UpdateLineTest, ShowsEveryKind) {
  v1::JobUpdate incident = Event("recovered", v1::RUNNING, "rank_replaced");
  v1::Incident& closed = *incident.mutable_event()->mutable_incident();
  closed.set_dp(1);
  closed.set_node("h1");
  closed.set_cause("killed_by_signal_9");
  closed.set_detect_ms(3.4);
  closed.set_quiesce_ms(40);
  closed.set_restore_ms(52);
  closed.set_first_step_ms(250);
  closed.set_total_ms(305.4);
  closed.set_cut_step(17);
  closed.set_restored_from("survivor");
  closed.set_closed(true);
  EXPECT_THAT(UpdateLine(incident),
              HasSubstr("recovered rank dp 1 tp 0 on h1: killed_by_signal_9; detected in 3 ms, all "
                        "stopped after 40 ms, state restored after 52 ms, first step after 250 ms; "
                        "total 305 ms; went on from step 17 (state from survivor), 0 steps lost"));

  v1::JobUpdate evaluated = Event("evaluated", v1::RUNNING, "");
  v1::Evaluation& evaluation = *evaluated.mutable_event()->mutable_evaluation();
  evaluation.set_step(66);
  evaluation.set_loss(0.48);
  evaluation.set_accuracy(0.841);
  evaluation.set_balanced_accuracy(0.82);
  evaluation.set_images(525);
  EXPECT_THAT(UpdateLine(evaluated),
              HasSubstr("evaluated after step 66: loss 0.4800, accuracy 84.1 %, balanced accuracy "
                        "82.0 % of 525 images"));

  v1::JobUpdate log;
  log.mutable_log()->set_dp(1);
  log.mutable_log()->set_tp(0);
  log.mutable_log()->set_level("warning");
  log.mutable_log()->set_text("hot\x1b[2J");
  EXPECT_THAT(UpdateLine(log), HasSubstr("warning [dp 1 tp 0] hot [2J"));

  v1::JobUpdate dropped;
  dropped.mutable_dropped()->set_first(3);
  dropped.mutable_dropped()->set_last(9);
  dropped.mutable_dropped()->set_reason("slow_reader");
  EXPECT_THAT(UpdateLine(dropped), HasSubstr("updates 3 to 9 were not delivered: slow_reader"));
  dropped.mutable_dropped()->set_reason("filter");
  EXPECT_EQ(UpdateLine(dropped), "");
}

TEST(ResultTextTest, ShowsValidationMatrixArtifactsAndIncidents) {
  v1::Job job;
  job.set_job_id("01JABC");
  job.set_state(v1::SUCCEEDED);
  job.set_reason("all_ranks_finished");
  job.set_artifact_root("/srv/artifacts");
  job.mutable_submitted()->set_seconds(1000);
  job.mutable_started()->set_seconds(1005);
  job.mutable_finished()->set_seconds(1125);
  v1::Evaluation& evaluation = *job.mutable_evaluation();
  evaluation.set_images(10);
  evaluation.set_accuracy(0.8);
  for (const char* name : {"good", "cracked"}) {
    v1::ClassResult& result = *evaluation.add_classes();
    result.set_name(name);
    result.set_images(5);
    result.set_recall(0.8);
  }
  for (const uint32_t count : {4, 1, 1, 4}) evaluation.add_confusion(count);
  v1::Artifact& model = *job.add_artifacts();
  model.set_kind("model");
  model.set_path("jobs/01JABC/model.safetensors");
  model.set_bytes(2048);
  const std::string text = ResultText(job);
  EXPECT_THAT(text, HasSubstr("  truth \\ predicted  good  cracked\n"
                              "  good                  4        1\n"
                              "  cracked               1        4\n"));
  EXPECT_THAT(text, HasSubstr("  good          5  80.0 %"));
  EXPECT_THAT(text, HasSubstr("/srv/artifacts/jobs/01JABC/model.safetensors (2.0 KiB"));
  EXPECT_THAT(text, HasSubstr("incidents            none\n"));
  EXPECT_THAT(text, HasSubstr("total time           2 min 05 s, 2 min 00 s of it after the start"));
}

}  // namespace
}  // namespace tundish::client
