#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tundish/v1/node.pb.h"

namespace tundish::agent {

/// What waits to go to the coordinator, in the order it happened: a rank's last report never comes
/// after the news of its exit.
///
/// *Facts* (exits, failed starts, task results) are told at least once: there is no
/// acknowledgement, so a fact is sent again on the next stream unless the stream it went out on
/// lasted kSettled longer. *Reports* are the ranks' to keep until the coordinator has them, so they
/// are only passed on. Pure: no clock, no I/O; one thread.
class UplinkQueue {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds kSettled{10};
  /// One WorkerReports message holds at most this much, bytes.
  static constexpr size_t kBatchBytes = 1 << 20;

  /// Reports beyond `report_bound_bytes` are refused.
  explicit UplinkQueue(size_t report_bound_bytes) : report_bound_bytes_(report_bound_bytes) {}

  /// Queues a fact (`message` has its body; node and incarnation are the stream's business).
  /// `since`: when it was observed; an exit's observed_ms is counted from it.
  void AddFact(v1::AgentMessage message, TimePoint since);

  /// Queues an answer that means something on the present stream only: it is sent once or never.
  void AddPassing(v1::AgentMessage message);

  /// Queues a report. False, and nothing queued, if the reports queued hold the bound already.
  bool AddReport(v1::RankReport report);

  /// The next message to write, or nothing. All reports up to the next fact leave together.
  std::optional<v1::AgentMessage> Next(TimePoint now);

  /// The stream has ended: facts that were not settled are queued again, in front; reports are
  /// dropped, since their ranks are asked for them after the next registration.
  void StreamEnded();

  /// Facts that went out at least kSettled ago on the present stream, each returned once.
  std::vector<v1::AgentMessage> TakeSettled(TimePoint now);

  /// Exits that were never sent: their workers belong into a registration, since one that is
  /// missing there counts as gone without a cause, and the cause follows at once.
  std::vector<v1::WorkerExited> UntoldExits() const;

  bool empty() const { return queue_.empty(); }

 private:
  struct Item {
    v1::AgentMessage fact;
    std::optional<v1::RankReport> report;  // Set: a report, and `fact` means nothing.
    TimePoint since;
    std::optional<TimePoint> sent;  // When it was last written.
    bool passing = false;           // Set: a fact that is not repeated.
  };

  const size_t report_bound_bytes_;
  size_t report_bytes_ = 0;
  std::deque<Item> queue_;
  std::deque<Item> sent_;  // Facts only, oldest first.
};

}  // namespace tundish::agent
