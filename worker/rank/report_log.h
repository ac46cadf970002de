#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "tundish/v1/rank.pb.h"

namespace tundish::rank {

/// The reports of one rank that are not yet known to be durable, numbered from 1, and how far they
/// were sent. Bounded: training never waits for the control plane. When the bound is reached the
/// oldest StepDone or LogLine is given up, whose loss costs a point of a curve and not the job;
/// only when there is none, the oldest of all. Numbers of given-up reports are not used again. Not
/// thread-safe.
class ReportLog {
 public:
  /// Holds at most `most` reports, at least 1.
  explicit ReportLog(size_t most) : most_(most) {}

  /// Takes the report and gives it the next number.
  void Append(v1::RankReport report);

  /// Forgets reports up to and including `number`.
  void AckUpTo(uint64_t number);

  /// Everything still held is to be sent again.
  void Rewind() { next_ = 0; }

  /// The next report to send, in order of numbers, with `after` naming the one held before it; null
  /// when all are sent. Counts as sent then.
  const v1::RankReport* TakeNext();

  size_t held() const { return reports_.size(); }
  /// Reports given up since the beginning.
  uint64_t given_up() const { return given_up_; }

 private:
  void GiveUpOne();

  const size_t most_;
  std::deque<v1::RankReport> reports_;
  size_t next_ = 0;  ///< Index into reports_ of the next to send.
  uint64_t last_number_ = 0;
  uint64_t given_up_ = 0;
};

}  // namespace tundish::rank
