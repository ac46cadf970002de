#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "tundish/v1/job_service.grpc.pb.h"
#include "tundish/v1/node.grpc.pb.h"

namespace tundish::client {

/// What the coordinator of a test knows; outlives the servers that show it. Thread-safe.
class FakeState {
 public:
  /// The spec of the last SubmitJob, and its request id.
  v1::SubmitJobRequest submitted();
  void SetSubmitted(const v1::SubmitJobRequest& request);

  void SetJob(const v1::Job& job);
  v1::Job job();

  /// Appends to the job's stream; seq is given by position.
  void Add(v1::JobUpdate update);
  void AddMetric(uint32_t step, double loss);
  void AddEvent(v1::JobState state, const std::string& reason);

  /// From now on every stream sends all updates up to this seq and breaks off with UNAVAILABLE
  /// (0: no more breaks).
  void BreakStreamsBehind(uint32_t seq);
  /// Waits until that many WatchJob calls have been made.
  void AwaitWatches(int count);
  int watches();

  void SetNode(const std::string& name, const std::string& state);
  void SetFile(const std::string& path, const std::string& bytes);

  /// SubmitJob answers with this.
  void SetSubmitError(const grpc::Status& status, const std::vector<v1::InvalidField>& fields = {});

 private:
  friend class FakeJobService;
  friend class FakeClusterService;
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::SubmitJobRequest submitted_;
  v1::Job job_;
  std::vector<v1::JobUpdate> updates_;
  uint32_t break_behind_ = 0;
  int watches_ = 0;
  std::vector<v1::WatchJobRequest> watch_requests_;
  std::map<std::string, std::string> nodes_;
  std::map<std::string, std::string> files_;
  grpc::Status submit_error_;
  std::vector<v1::InvalidField> submit_fields_;
};

class FakeJobService : public v1::JobService::Service {
 public:
  explicit FakeJobService(FakeState& state) : state_(state) {}
  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override;
  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status CancelJob(grpc::ServerContext* context, const v1::CancelJobRequest* request,
                         v1::CancelJobResponse* response) override;
  grpc::Status ExplainJob(grpc::ServerContext* context, const v1::ExplainJobRequest* request,
                          v1::ExplainJobResponse* response) override;
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::WatchJobResponse>* writer) override;
  grpc::Status FetchArtifact(grpc::ServerContext* context, const v1::FetchArtifactRequest* request,
                             grpc::ServerWriter<v1::FetchArtifactResponse>* writer) override;
  grpc::Status ListCheckpoints(grpc::ServerContext* context,
                               const v1::ListCheckpointsRequest* request,
                               v1::ListCheckpointsResponse* response) override;

 private:
  FakeState& state_;  // Outlives the server.
};

class FakeClusterService : public v1::ClusterService::Service {
 public:
  explicit FakeClusterService(FakeState& state) : state_(state) {}
  grpc::Status ListNodes(grpc::ServerContext* context, const v1::ListNodesRequest* request,
                         v1::ListNodesResponse* response) override;
  /// Also makes a node known.
  grpc::Status DrainNode(grpc::ServerContext* context, const v1::DrainNodeRequest* request,
                         v1::DrainNodeResponse* response) override;

 private:
  FakeState& state_;  // Outlives the server.
};

/// A real gRPC server over `state`, on `port` or any free one.
class FakeCoordinator {
 public:
  explicit FakeCoordinator(FakeState& state, int port = 0);
  /// Breaks every stream off.
  ~FakeCoordinator();
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  FakeJobService jobs_;
  FakeClusterService cluster_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tundish::client
