#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/jobs/core.h"
#include "tundish/v1/node.pb.h"
#include "tundish/v1/rank.pb.h"

namespace tundish::fakes {

/// An agent and its ranks without processes: speaks the real messages with a Core in this thread.
/// Ranks answer orders as real ones do; steps happen when the test says so. Orders wait in a queue
/// until Process(), so that a test can act in between.
class FakeAgent {
 public:
  struct Rank {
    std::string job_id;
    std::vector<std::string> devices;
    int dp = 0;
    int tp = 0;
    uint32_t job_epoch = 0;
    /// Steps committed; the fake rank is never between two steps, or REDUCED if told so.
    uint32_t step = 0;
    bool reduced = false;
    bool has_state = false;
    bool formed = false;
    bool hangs = false;  ///< A stopped process: answers nothing.
    uint64_t number = 0;
    std::map<uint64_t, v1::RankReport> unacknowledged;
    uint32_t total_steps = 0;
    uint32_t assignments = 0;
    std::string start_kind;
    /// Asked to yield: stops, with all others, after its next step.
    bool yields = false;
    /// How it came to what it saved: "keep" or "commit".
    std::string saved_from;
    /// Degrees of the arrangement, as it was told.
    int data = 0;
    int tensor = 0;
  };

  /// What ranks and the agent do by themselves when an order comes.
  struct Manners {
    bool check_data = true;
    bool become_ready = true;
    bool form = true;
    bool answer_stop = true;
    bool answer_save = true;
    /// Reports get lost on the way; ranks keep them.
    bool lose_reports = false;
    bool can_save = true;
    bool exit_when_told = true;
    bool die_when_killed = true;
    std::string data_error;
    /// What steps take, by their reports.
    double step_seconds = 0.25;
    /// What WorkerExited brings.
    std::string log_tail;
  };

  FakeAgent(std::string node, int devices);

  /// Opens a stream and registers, with the ranks that live.
  void Connect(jobs::Core& core);
  /// The stream breaks. What ranks report meanwhile is kept by them.
  void Disconnect();
  /// The coordinator process is gone: forget it without a word.
  void Forget() { core_ = nullptr, link_ = nullptr; }
  bool connected() const { return link_ != nullptr; }

  /// Handles the orders received so far. True if there were any.
  bool Process();

  /// Every formed rank of the job commits its next step and reports it.
  void Step(const std::string& job_id);
  void StepOne(const std::string& worker_id);
  /// Formed ranks of the job stop together, as after a step with a Yield in the control vector.
  void AgreeToStop(const std::string& job_id);
  /// Every rank of the job reports Finished; (0, 0) with a model.
  void Finish(const std::string& job_id);
  void Report(const std::string& worker_id, v1::RankReport report);
  /// Sends a report again, as it is.
  void SendAgain(const v1::RankReport& report);
  void Heartbeat();
  /// The process dies; the agent sees it if connected.
  void Kill(const std::string& worker_id, int signal = 9);
  /// The whole host goes without a word.
  void LoseHost();

  std::string WorkerAt(const std::string& job_id, int dp, int tp) const;
  std::map<std::string, Rank>& ranks() { return ranks_; }
  Manners& manners() { return manners_; }
  /// Every order ever received, by name, in order: "start", "kill", "assign", "stop", "exit", …
  const std::vector<std::string>& log() const { return log_; }
  int Count(const std::string& order) const;
  const v1::RunTask& last_task() const { return last_task_; }
  void AnswerTask();

 private:
  class Link;

  void Handle(const v1::CoordinatorMessage& message);
  void HandleOrder(const v1::RankOrder& order);
  void Assign(const std::string& worker_id, const v1::RankOrder& order);
  void Save(const std::string& worker_id, const v1::RankOrder& order);
  void SendKept(const Rank& rank, v1::RankReport report);
  void Send(v1::AgentMessage message);

  const std::string name_;
  std::string incarnation_;
  const int devices_;
  jobs::Core* core_ = nullptr;
  std::shared_ptr<Link> link_;
  std::deque<v1::CoordinatorMessage> inbox_;
  std::map<std::string, Rank> ranks_;
  Manners manners_;
  std::vector<std::string> log_;
  v1::RunTask last_task_;
};

}  // namespace tundish::fakes
