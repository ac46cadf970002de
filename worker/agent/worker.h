#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/steady_timer.hpp>

#include "runtime/process/process.h"
#include "runtime/rpc/server_stream.h"
#include "tundish/v1/agent_state.pb.h"
#include "tundish/v1/rank.pb.h"

namespace tundish::agent {

/// A rank's Attach call.
using RankStream = rpc::BidiStream<v1::RankReport, v1::RankOrder>;

/// Orders for a rank that is not attached at the moment. Bounded: beyond kBound the oldest go, and
/// of acknowledgements only the last one is kept, which says all the earlier ones said.
class OrderBuffer {
 public:
  static constexpr size_t kBound = 64;

  /// False if an order had to be dropped for it.
  bool Add(v1::RankOrder order);

  /// Everything, in order; the buffer is empty afterwards.
  std::deque<v1::RankOrder> Take() { return std::exchange(orders_, {}); }

  bool empty() const { return orders_.empty(); }

 private:
  std::deque<v1::RankOrder> orders_;
};

/// One rank process as the agent knows it. A table's row: Workers has the behaviour.
struct Worker {
  v1::WorkerRecord record;
  std::unique_ptr<process::Process> process;
  bool adopted = false;
  std::shared_ptr<RankStream> stream;  // Null while it is not attached.
  OrderBuffer orders;
  /// Highest job_epoch the rank was assigned or reported from; 0: it belongs to no arrangement.
  uint32_t job_epoch = 0;
  /// It was told to leave: its end is no loss.
  bool exit_ordered = false;
  /// Set once the process has ended and only its last words are awaited.
  std::optional<v1::WorkerExited> exited;
  std::chrono::steady_clock::time_point exit_observed;
  std::unique_ptr<boost::asio::steady_timer> last_words_limit;

  const std::string& id() const { return record.start().worker_id(); }
  const std::string& job() const { return record.start().job_id(); }
};

/// "finished", "error", "killed_by_signal_N" or "unknown": bounded, for metrics.
std::string ExitCause(const v1::WorkerExited& exited);

/// True if both are equal and not empty; takes as long for any `given` of one length.
bool SecretsEqual(std::string_view secret, std::string_view given);

}  // namespace tundish::agent
