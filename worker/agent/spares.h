#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <absl/status/status.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/process/process.h"
#include "tundish/v1/agent_state.pb.h"
#include "tundish/v1/node.pb.h"
#include "worker/agent/state_dir.h"
#include "worker/agent/worker.h"

namespace tundish::agent {

/// Rank processes that stand by for the jobs whose ranks train on this host: started, libraries
/// loaded, prepared for their job, with no device. The coordinator does not know them; a
/// StartWorker that one of them can serve is simply answered sooner. A spare that dies is replaced,
/// unless three in a row came to nothing. Runs on one single-threaded io_context.
class Spares {
 public:
  /// How long a job's spares are kept after its last rank here has ended otherwise than by order:
  /// the order for a replacement is on its way.
  static constexpr std::chrono::seconds kGrace{2};

  /// `state` outlives the table.
  Spares(boost::asio::io_context& io, StateDir& state, std::string rank_binary)
      : io_(io), state_(state), rank_binary_(std::move(rank_binary)) {}

  /// A rank of the job, started by `order`, trains here: brings its spares up to
  /// order.warm_spares(). Cheap when nothing is missing; call after every committed step, which is
  /// when a recovery needs the processor no more.
  void Keep(const v1::StartWorker& order);

  /// No rank of the job is left on this host. `by_order`: nor will there be.
  void JobLeft(const std::string& job_id, bool by_order);

  /// The most advanced spare that can serve `order`, as the worker it has become; its record is
  /// written. Nothing if there is none.
  std::optional<Worker> Take(const v1::StartWorker& order);

  /// Takes a spare of an earlier agent over. `process` is running; see SetExitHandler.
  void Insert(v1::WorkerRecord record, std::unique_ptr<process::Process> process);
  /// What is called when the process of a spare, by then still one or not, has ended.
  void SetExitHandler(std::function<void(const std::string& process_id, const process::Exit&)> on);

  /// A spare's process has ended. False if `process_id` is none.
  bool OnExit(const std::string& process_id);

  /// False if hello is not a spare's; else `status` says whether its stream was let in.
  bool Attach(const v1::RankReport& hello, const std::shared_ptr<RankStream>& stream,
              absl::Status& status);
  void Detach(std::string_view process_id, const RankStream* stream);
  bool contains(std::string_view process_id) const { return spares_.contains(process_id); }

  size_t count() const { return spares_.size(); }
  /// Those that have spares.
  std::set<std::string> Jobs() const;

  /// Kills all, whose ends nobody waits for.
  void KillAll();
  void DetachAll();

 private:
  struct Job {
    int fruitless = 0;  ///< Spares in a row that ended before they attached.
    std::unique_ptr<boost::asio::steady_timer> leaving;
  };

  void StartOne(const v1::StartWorker& order);
  void KillJob(const std::string& job_id);

  boost::asio::io_context& io_;
  StateDir& state_;
  const std::string rank_binary_;
  std::function<void(const std::string&, const process::Exit&)> on_exit_;
  std::map<std::string, Worker, std::less<>> spares_;  ///< By process id: oldest first.
  std::map<std::string, Job> jobs_;
};

}  // namespace tundish::agent
