#include "worker/rank/report_log.h"

#include <vector>

#include <gtest/gtest.h>

namespace tundish::rank {
namespace {

v1::RankReport Step() {
  v1::RankReport report;
  report.mutable_step();
  return report;
}

v1::RankReport Stopped() {
  v1::RankReport report;
  report.mutable_stopped();
  return report;
}

std::vector<uint64_t> Drain(ReportLog& log) {
  std::vector<uint64_t> numbers;
  while (const v1::RankReport* report = log.TakeNext()) numbers.push_back(report->number());
  return numbers;
}

using Numbers = std::vector<uint64_t>;

TEST(ReportLogTest, NumbersSendsOnceAndAgainAfterRewind) {
  ReportLog log(10);
  for (int i = 0; i < 3; ++i) log.Append(Step());
  EXPECT_EQ(Drain(log), (Numbers{1, 2, 3}));
  EXPECT_EQ(Drain(log), Numbers{});
  log.Append(Step());
  EXPECT_EQ(Drain(log), Numbers{4});
  log.AckUpTo(2);
  log.Append(Step());
  EXPECT_EQ(Drain(log), Numbers{5});
  log.Rewind();
  EXPECT_EQ(Drain(log), (Numbers{3, 4, 5}));
  log.AckUpTo(100);
  log.Rewind();
  EXPECT_EQ(Drain(log), Numbers{});
}

TEST(ReportLogTest, AnAckBeforeSendingSkipsTheReport) {
  ReportLog log(10);
  for (int i = 0; i < 3; ++i) log.Append(Step());
  EXPECT_EQ(log.TakeNext()->number(), 1U);
  log.AckUpTo(2);
  EXPECT_EQ(Drain(log), Numbers{3});
}

TEST(ReportLogTest, GivesUpOldStepsBeforeAnythingElse) {
  ReportLog log(3);
  log.Append(Stopped());
  log.Append(Step());
  log.Append(Step());
  EXPECT_EQ(log.TakeNext()->number(), 1U);
  EXPECT_EQ(log.TakeNext()->number(), 2U);
  log.Append(Stopped());  // Number 2, sent already, goes.
  EXPECT_EQ(log.given_up(), 1U);
  EXPECT_EQ(Drain(log), (Numbers{3, 4}));
  log.Append(Stopped());  // Number 3 goes.
  log.Append(Stopped());  // No step is left: number 1 goes.
  log.Rewind();
  EXPECT_EQ(Drain(log), (Numbers{4, 5, 6}));
  EXPECT_EQ(log.held(), 3U);
  EXPECT_EQ(log.given_up(), 3U);
}

}  // namespace
}  // namespace tundish::rank
