#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.
#include <vector>

#include <absl/status/status.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tundish/v1/node.pb.h"
#include "worker/agent/spares.h"
#include "worker/agent/state_dir.h"
#include "worker/agent/worker.h"

namespace tundish::agent {

/// The rank processes of this host: starts, adopts, watches and kills them, and hands them orders.
/// Destroying the table leaves the processes alone. Runs on one single-threaded io_context.
class Workers {
 public:
  struct Options {
    std::string rank_binary;
    /// Device names that may be given to ranks.
    std::vector<std::string> devices;
  };

  /// A process has ended; called once for each, after its last report. `observed`: when the kernel
  /// said so.
  using OnExited =
      std::function<void(v1::WorkerExited, std::chrono::steady_clock::time_point observed)>;

  /// `state` outlives the table.
  Workers(boost::asio::io_context& io, StateDir& state, Options options, OnExited on_exited);

  /// Takes over the processes an earlier agent recorded; reports those that ended meanwhile. A
  /// process whose record was lost is killed. Errors: of reading the records, and Internal if it
  /// cannot be told whether a process still runs: then nothing may be placed on its device.
  absl::Status AdoptRecorded();

  /// Starts a rank: a spare becomes it, or a process is started. Starting a worker that exists is
  /// the same order told twice and has no effect. Errors (all for StartFailed): InvalidArgument
  /// naming the id, device or file that is wrong.
  absl::Status Start(const v1::StartWorker& order);

  /// Kills a rank; its exit is reported as any other. For an unknown worker an exit is reported at
  /// once, so that whoever asked stops waiting.
  void Kill(const v1::KillWorker& order);

  /// Hands an order to its worker, now or when it attaches; an unknown worker's is dropped (its
  /// exit was reported).
  void Deliver(v1::RankOrder order);

  /// Passes on that reports up to ack.number() are durable.
  void Acknowledge(const v1::ReportAck& ack);

  /// Tells every attached rank to send its unacknowledged reports again.
  void AskAgain();

  /// Lets a rank's stream in, in place of an earlier one. Errors: PermissionDenied unless `hello`
  /// is the Hello of a worker of ours with its secret.
  absl::Status Attach(const v1::RankReport& hello, std::shared_ptr<RankStream> stream);

  /// The stream is over.
  void Detach(std::string_view worker_id, const RankStream* stream);

  /// The worker that the process started as `process_id` is; `process_id` if it is itself one's id.
  std::string IdOf(std::string_view process_id) const;

  /// True if the process stands by: it has nothing to report.
  bool IsSpare(std::string_view process_id) const { return spares_.contains(process_id); }
  size_t spares() const { return spares_.count(); }

  /// Learns the job_epoch a rank is in, and that its job trains.
  void NoteReport(const v1::RankReport& report);

  /// OK if the worker is one of this job's on this host, else PermissionDenied.
  absl::Status CheckMember(std::string_view worker_id, std::string_view job_id) const;

  /// The coordinator knows of this exit: its record may go.
  void ExitKnown(const v1::WorkerExited& exited);

  /// Every process whose exit was not reported yet.
  std::vector<v1::LiveWorker> Live() const;

  /// Kills all; `done` runs when all have ended and been reported, after `limit` at the latest (the
  /// kernel may keep a process that waits for a device).
  void KillAll(std::chrono::milliseconds limit, std::function<void()> done);

  /// Ends every attachment, since the agent stops; the processes stay.
  void DetachAll();

 private:
  static constexpr size_t kLogTailBytes = 4096;

  absl::Status AdoptOne(v1::WorkerRecord record);
  /// Completes a record that was written before its process was known, if that runs.
  absl::Status FindProcess(v1::WorkerRecord& record);
  void Insert(v1::WorkerRecord record, std::unique_ptr<process::Process> process, bool adopted);
  process::Process::OnExit ExitHandler(const std::string& process_id);
  static v1::RankOrder BecomeOrder(const Worker& worker);
  absl::Status CheckDevices(const v1::StartWorker& order) const;
  void OnProcessExit(const std::string& process_id, const process::Exit& exit);
  void StopPeers(const Worker& lost);
  void ReportExit(const std::string& worker_id);
  void Send(Worker& worker, v1::RankOrder order);

  boost::asio::io_context& io_;
  StateDir& state_;
  const Options options_;
  OnExited on_exited_;
  std::map<std::string, Worker, std::less<>> workers_;
  Spares spares_;
  /// Folders of workers that were spares, until the coordinator knows of their end: id → folder.
  std::map<std::string, std::string> folders_;
  std::function<void()> all_killed_;
  boost::asio::steady_timer kill_limit_;
};

}  // namespace tundish::agent
