#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "server/jobs/changes.h"
#include "server/jobs/committer.h"
#include "server/jobs/context.h"
#include "server/jobs/job.h"
#include "server/jobs/job_index.h"
#include "server/jobs/losses.h"
#include "server/jobs/node_table.h"
#include "server/jobs/parking.h"
#include "server/jobs/retention.h"
#include "server/jobs/settings.h"
#include "server/jobs/stream_hub.h"
#include "server/rendezvous/store_table.h"
#include "server/store/store.h"
#include "tundish/v1/job_service.pb.h"
#include "tundish/v1/node.pb.h"

namespace tundish::jobs {

/// Hears of what became durable; called on the loop. For metrics.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnUpdate(const Job& job, const v1::JobUpdate& update) = 0;
  /// About once per second.
  virtual void OnTick(const std::map<std::string, std::unique_ptr<Job>>& jobs,
                      const NodeTable& nodes, const Committer& committer, Now now) = 0;
  /// A batch became durable.
  virtual void OnCommit(std::chrono::duration<double> took) = 0;
};

/// The coordinator's state and its only owner: jobs, nodes, streams. Every method is called on one
/// loop.
///
/// A handler changes the tables in memory and collects what it did (Changes); Commit() makes that
/// durable and only then lets replies, orders and updates leave. Methods for clients answer from
/// memory: their caller awaits Settled() before the answer leaves.
class Core {
 public:
  struct Parts {
    boost::asio::any_io_executor loop;
    store::Store& store;  // Outlives the core.
    Settings settings;
    Clock clock;
    /// Removes a folder below the artifact root, off the loop. May be empty.
    std::function<void(std::string)> remove_folder;
    /// Removes all but the named entries of a folder there, likewise.
    std::function<void(Sweep)> sweep_folder;
    /// Outlives the core. May be null.
    Observer* observer = nullptr;
    /// Free bytes on the disk that holds the store; quick. May be empty.
    std::function<uint64_t()> free_bytes;
  };

  explicit Core(Parts parts);
  ~Core();

  /// Takes up what the store has: streams, requests, nodes, jobs. Jobs with an unfinished
  /// arrangement get a new job_epoch; running ones wait for their agents. Call once, first.
  absl::Status Load();

  // For clients.

  /// `resolved` is a valid resolved spec. Errors: InvalidArgument (request_id), AlreadyExists
  /// (naming the field that differs), FailedPrecondition (more ranks than devices),
  /// ResourceExhausted (memory), Unavailable.
  absl::StatusOr<v1::SubmitJobResponse> Submit(const std::string& request_id,
                                               const v1::JobSpec& resolved);
  /// `job_id`: whole, or a prefix of at least 6 characters that fits one job. Errors: NotFound,
  /// InvalidArgument.
  absl::StatusOr<v1::Job> GetJob(std::string_view job_id) const;
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request) const;
  absl::StatusOr<v1::CancelJobResponse> CancelJob(const v1::CancelJobRequest& request);
  /// See RequestYield. Errors of GetJob; FailedPrecondition if the job has no devices to give back.
  absl::Status YieldJob(std::string_view job_id, YieldReason reason, const std::string& message);
  /// Ends the hold of a paused job. Errors of GetJob.
  absl::Status LetJobGoOn(std::string_view job_id);
  absl::StatusOr<v1::ExplainJobResponse> ExplainJob(std::string_view job_id) const;
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(std::string_view job_id) const;
  v1::PlanJobResponse PlanJob(const v1::JobSpec& resolved) const;
  /// OK if `path` is the job's: an artifact, the config.json beside a model, or a file in a
  /// checkpoint's folder. Errors: NotFound, naming what there is; InvalidArgument for a path with
  /// "." or ".." in it.
  absl::Status CheckArtifact(std::string_view job_id, const std::string& path) const;
  /// Errors of GetJob.
  absl::StatusOr<v1::ListArtifactsResponse> ListArtifacts(std::string_view job_id) const;
  /// Ready nodes whose agents may see the job's files, the likeliest first: those of its ranks,
  /// then all others.
  std::vector<std::string> NodesNearFiles(std::string_view job_id);
  /// Has the agent of `node` read a piece of a file (`request` without read_id). `done` is called
  /// once, on the loop, perhaps within. Errors: the agent's, or Unavailable if it is away or gives
  /// no answer in time.
  using FileRead = std::function<void(absl::StatusOr<v1::FileChunk>)>;
  void ReadFile(const std::string& node, v1::ReadFile request, FileRead done);
  v1::ListNodesResponse ListNodes() const { return nodes_.Describe(); }
  absl::Status DrainNode(const v1::DrainNodeRequest& request);
  /// The reader to name in streams().Drained and Remove. Errors of GetJob.
  absl::StatusOr<StreamHub::ReaderId> WatchJob(v1::WatchJobRequest request,
                                               std::shared_ptr<UpdateSink> sink);
  /// Errors: InvalidArgument, Unavailable.
  absl::StatusOr<StreamHub::ReaderId> WatchAll(const v1::WatchAllRequest& request,
                                               std::shared_ptr<AllUpdatesSink> sink);
  StreamHub& streams() { return streams_; }

  /// Returns when everything done so far is durable.
  boost::asio::awaitable<absl::Status> Settled() { return committer_.Settled(); }

  // For agents.

  void OnAgentMessage(const std::shared_ptr<AgentLink>& link, const v1::AgentMessage& message);
  void OnAgentGone(const AgentLink* link);
  /// See rendezvous::StoreTable::Call.
  void CallStore(const v1::StoreRequest& request, rendezvous::StoreTable::Done done);

  /// Acts on limits that have passed. Call several times per second.
  void Tick();

  /// Ends streams, links and waiting calls with UNAVAILABLE. What is in memory and not durable yet
  /// is dropped; ranks send it again.
  void Close();

  const std::map<std::string, std::unique_ptr<Job>>& jobs() const { return jobs_; }
  /// Streams of agents that have registered.
  size_t link_count() const { return links_.size(); }
  const Committer& committer() const { return committer_; }

 private:
  absl::StatusOr<Job*> Find(std::string_view job_id) const;
  Job* FindExact(const std::string& job_id) const;
  absl::Status CheckAccepting() const;
  absl::Status CheckFitsCluster(const v1::JobSpec& spec) const;
  void Audit(const std::string& action, const std::string& subject, const std::string& outcome,
             Changes& changes) const;

  /// Runs `act(context)`, commits what came of it, and has the scheduler run soon if asked to.
  template <class Act>
  void Change(Act act) {
    Changes changes;
    Context context = MakeContext(changes);
    act(context);
    const bool schedule = changes.schedule;
    Commit(std::move(changes));
    if (schedule) RequestSchedule();
  }
  Context MakeContext(Changes& changes);
  void Commit(Changes changes);
  void Leave(const Changes& changes);
  void SendOrder(const Order& order);

  void RequestSchedule();
  void RunSchedule();
  void StartChecks(Context& context);
  void Schedule(Context& context);
  void GrowJobs(Context& context);

  void OnRegister(const std::shared_ptr<AgentLink>& link, const v1::AgentMessage& message);
  void ReconcileNode(Node& node, const v1::Register& registration, Context& context);
  void Adopt(Job& job, Member& member, const v1::LiveWorker& worker, Context& context);
  void OnWorkerExited(Node& node, const v1::WorkerExited& exited, Context& context);
  void OnStartFailed(Node& node, const v1::StartFailed& failed, Context& context);
  void OnReports(Node& node, const v1::WorkerReports& reports, Context& context);
  void ReleaseMember(Node& node, const std::string& job_id, const std::string& worker_id,
                     const Loss& loss, Context& context);
  void OrderKill(const std::string& node, const std::string& worker_id, const std::string& job_id,
                 Context& context);

  void StartLinkCheck(Node& node, Context& context);
  void OnLinkReport(const Node& peer, const v1::LinkReport& report, Context& context);
  void CheckLinks(Context& context);
  void OnFileChunk(const v1::FileChunk& chunk);
  /// Fails the reads for which `fails(read)` holds.
  struct PendingRead {
    std::string node;
    std::chrono::steady_clock::time_point limit;
    FileRead done;
  };
  void FailReads(const std::function<bool(const PendingRead&)>& fails, const std::string& reason);
  void TickOncePerSecond(Context& context);
  void Retain(Now now);
  void OnRetained(const RetentionTask& task, const absl::StatusOr<store::PruneResult>& result);
  void ForgetNodes(Context& context);

  void LoadJob(const store::StoredJob& stored, Context& context);
  void ResumeStage(Job& job, const v1::JobProgress& progress, Context& context);
  static void AskForLeftReports(Job& job, Context& context);
  void CheckNodes(Context& context);
  bool MayGiveUp(const Job& job, const Node& node, Now now) const;

  Parts parts_;
  Committer committer_;
  StreamHub streams_;
  NodeTable nodes_;
  rendezvous::StoreTable rendezvous_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
  JobIndex index_;
  struct Accepted {
    std::string job_id;
    std::string spec_hash;
  };
  /// By (tenant, request_id).
  std::map<std::pair<std::string, std::string>, Accepted> requests_;
  /// Streams that have registered → node.
  std::unordered_map<const AgentLink*, std::string> links_;
  std::optional<std::chrono::steady_clock::time_point> last_tick_;
  std::chrono::steady_clock::time_point next_second_;
  std::chrono::steady_clock::time_point next_artifact_check_;
  std::map<std::string, PendingRead> reads_;
  Retention retention_;
  bool retaining_ = false;
  std::chrono::system_clock::time_point next_audit_retention_;
  /// OK while there is room for new work.
  absl::Status room_;
  /// The scheduler has to run, and may not before this time: it takes a tenth of the loop at most.
  bool schedule_requested_ = false;
  std::chrono::steady_clock::time_point next_schedule_;
  /// Lets what was posted and not run before destruction do nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool closed_ = false;
};

}  // namespace tundish::jobs
