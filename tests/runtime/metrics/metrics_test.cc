#include "runtime/metrics/metrics.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/metrics/process_usage.h"

namespace tundish::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum Metric : size_t { kUp, kSteps, kSeconds, kLoss };

std::vector<Definition> Table() {
  return {
      {Kind::kGauge, "tundish_up", "Whether it runs."},
      {Kind::kCounter, "tundish_steps_total", "Steps.", {"job", "rank"}},
      {Kind::kHistogram, "tundish_step_seconds", "Step time.", {"job"}, {0.1, 1}},
      {Kind::kGauge, "tundish_loss", "Loss.", {"job"}},
  };
}

TEST(MetricsTest, ShowsWhatWasCountedAndMeasured) {
  Metrics metrics(Table());
  EXPECT_THAT(metrics.Text(), HasSubstr("# HELP tundish_up Whether it runs.\n"
                                        "# TYPE tundish_up gauge\n"
                                        "tundish_up 0\n"));
  metrics.Set(kUp, 1);
  metrics.Add(kSteps, {"a", "0"});
  metrics.Add(kSteps, {"a", "0"}, 2);
  metrics.Observe(kSeconds, 0.5, {"a"});
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("tundish_up 1\n"));
  EXPECT_THAT(text, HasSubstr("tundish_steps_total{job=\"a\",rank=\"0\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("tundish_step_seconds_bucket{job=\"a\",le=\"0.1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("tundish_step_seconds_bucket{job=\"a\",le=\"1\"} 1\n"));
}

TEST(MetricsTest, RaisesACounterAndNeverLowersIt) {
  Metrics metrics(Table());
  metrics.RaiseTo(kSteps, 7, {"a", "0"});
  metrics.RaiseTo(kSteps, 5, {"a", "0"});
  EXPECT_THAT(metrics.Text(), HasSubstr("tundish_steps_total{job=\"a\",rank=\"0\"} 7\n"));
}

TEST(MetricsTest, ForgetsTheSeriesOfAnEndedJob) {
  Metrics metrics(Table());
  for (const char* job : {"a", "b"}) {
    metrics.Add(kSteps, {job, "0"});
    metrics.Add(kSteps, {job, "1"});
    metrics.Observe(kSeconds, 1, {job});
    metrics.Set(kLoss, 2, {job});
  }
  metrics.RemoveWhere("job", "a");
  metrics.Remove(kLoss, {"b"});
  metrics.Remove(kLoss, {"never seen"});
  const std::string text = metrics.Text();
  EXPECT_THAT(text, Not(HasSubstr("job=\"a\"")));
  EXPECT_THAT(text, Not(HasSubstr("tundish_loss{")));
  EXPECT_THAT(text, HasSubstr("tundish_steps_total{job=\"b\",rank=\"1\"} 1\n"));
  metrics.Set(kLoss, 3, {"a"});
  EXPECT_THAT(metrics.Text(), HasSubstr("tundish_loss{job=\"a\"} 3\n"));
}

TEST(MetricsTest, EscapesLabelValues) {
  Metrics metrics(Table());
  metrics.Set(kLoss, 1, {"a\"\n\\b"});
  EXPECT_THAT(metrics.Text(), HasSubstr("tundish_loss{job=\"a\\\"\\n\\\\b\"} 1\n"));
}

TEST(MetricsDeathTest, RefusesAnotherKindOrNumberOfLabels) {
  Metrics metrics(Table());
  EXPECT_DEATH(metrics.Add(kUp), "kind");
  EXPECT_DEATH(metrics.Set(kLoss, 1), "labels");
}

TEST(ProcessUsageTest, KnowsThisProcess) {
  const ProcessUsage usage = ReadProcessUsage();
  EXPECT_GT(usage.resident_bytes, 1u << 20);
  EXPECT_GE(usage.cpu_seconds, 0);
}

}  // namespace
}  // namespace tundish::metrics
