#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "worker/engine/observe/operator_watch.h"

namespace tundish::observe {

/// Collects what one rank did, as a trace that Chrome and Perfetto open: one track each for the
/// phases of the steps, operators, collectives the training thread waited for, and gradient buckets
/// under way. Bounded: what comes after a million spans is counted, not kept. The Add functions may
/// be called from any thread.
class TraceRecorder final : public OperatorWatch {
 public:
  using Clock = std::chrono::steady_clock;

  TraceRecorder(int dp, int tp) : dp_(dp), tp_(tp) {}

  void After(const OperatorCall& call) override;
  void AddPhase(std::string_view name, uint32_t step, Clock::time_point start,
                Clock::time_point end);
  void AddBucket(size_t bytes, Clock::time_point start, Clock::time_point end);

  /// The JSON object format of the Trace Event Format: complete events ("X"), microseconds of the
  /// host's steady clock, so that traces of ranks on one host fit together.
  std::string ToJson() const;

 private:
  enum class Track { kSteps = 1, kOperators, kCollectives, kBuckets };
  struct Span {
    Track track = Track::kSteps;
    std::string name;
    std::string detail;
    int64_t start_nanoseconds = 0;
    int64_t end_nanoseconds = 0;
  };

  void Add(Span span);

  const int dp_;
  const int tp_;
  mutable std::mutex mutex_;
  std::vector<Span> spans_;  // Guarded by mutex_.
  size_t dropped_ = 0;       // Likewise.
};

}  // namespace tundish::observe
