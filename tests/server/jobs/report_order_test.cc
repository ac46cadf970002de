#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/server/jobs/recovery_harness.h"

namespace tundish::jobs {
namespace {

/// Logs lines "1", "2", … through everything that can happen to a report on its way.
class ReportOrderTest : public RecoveryTest {
 protected:
  void Log(const std::string& worker) {
    v1::RankReport report;
    report.mutable_log()->set_text(std::to_string(++logged_));
    agent_->Report(worker, report);
  }

  /// As a rank that keeps too much: one report that is not acknowledged goes.
  void GiveUpOne(const std::string& worker, std::mt19937& random) {
    auto& kept = agent_->ranks().at(worker).unacknowledged;
    if (kept.empty()) return;
    const auto victim = std::next(kept.begin(), random() % kept.size());
    if (victim->second.has_log()) given_up_.insert(std::stoi(victim->second.log().text()));
    kept.erase(victim);
  }

  std::vector<int> LoggedLines(const std::string& id) {
    std::vector<int> lines;
    for (const v1::JobUpdate& update : Stored(id)) {
      if (update.has_log()) lines.push_back(std::stoi(update.log().text()));
    }
    return lines;
  }

  int logged_ = 0;
  std::set<int> given_up_;
};

TEST_F(ReportOrderTest, NothingIsLostButWhatTheRankGaveUpAndNothingComesTwice) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    logged_ = 0;
    given_up_.clear();
    agent_ = &AddAgent("host-" + std::to_string(seed), 1);
    const std::string id = Submit(Spec(1, 1), "r" + std::to_string(seed));
    Settle();
    const std::string worker = agent_->WorkerAt(id, 0, 0);
    for (int i = 0; i < 150; ++i) {
      agent_->manners().lose_reports = random() % 4 == 0;
      switch (random() % 12) {
        case 0:
          GiveUpOne(worker, random);
          break;
        case 1:
          agent_->Disconnect();
          break;
        case 2:
          if (i % 8 == 0) RestartCore();
          break;
        case 3:
        case 4:
          if (!agent_->connected()) agent_->Connect(*core_);
          break;
        case 5:
          Settle();
          break;
        case 6:
          agent_->Process();  // orders and acknowledgements that have left so far
          break;
        default:
          Log(worker);
      }
    }
    agent_->manners().lose_reports = false;
    agent_->Connect(*core_);
    Settle();
    EXPECT_TRUE(agent_->ranks().at(worker).unacknowledged.empty());
    const std::vector<int> lines = LoggedLines(id);
    EXPECT_TRUE(std::ranges::is_sorted(lines, std::ranges::less_equal()) || lines.empty());
    std::set<int> seen(lines.begin(), lines.end());
    EXPECT_EQ(seen.size(), lines.size()) << "a report was handled twice";
    for (int line = 1; line <= logged_; ++line) {
      EXPECT_TRUE(seen.contains(line) || given_up_.contains(line)) << "lost: " << line;
    }
    agent_->Disconnect();
    Settle();
  }
}

TEST_F(ReportOrderTest, ARepetitionWithAGapOfItsOwnIsAskedForAgain) {
  const std::string id = Run(1, 1, 1);
  const std::string worker = agent_->WorkerAt(id, 0, 0);
  agent_->manners().lose_reports = true;
  for (int i = 0; i < 3; ++i) Log(worker);
  agent_->manners().lose_reports = false;
  Log(worker);  // tells of the gap
  agent_->manners().lose_reports = true;
  Settle();  // the whole repetition is lost
  EXPECT_EQ(agent_->Count("resend"), 1);
  EXPECT_TRUE(LoggedLines(id).empty());
  agent_->manners().lose_reports = false;
  // Of the next one only the middle arrives: it must not pass for the whole.
  const auto kept = agent_->ranks().at(worker).unacknowledged;
  v1::RankReport middle = std::next(kept.begin(), 2)->second;
  middle.set_after(std::next(kept.begin(), 1)->first);
  agent_->SendAgain(middle);
  Settle();
  EXPECT_EQ(agent_->Count("resend"), 2);
  EXPECT_EQ(LoggedLines(id), (std::vector<int>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace tundish::jobs
