#pragma once

#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>
#include <grpcpp/grpcpp.h>

#include "server/jobs/core.h"
#include "tundish/v1/job_service.grpc.pb.h"

namespace tundish::api {

/// JobService over the core: decodes, posts to the core's loop, answers when what was said is
/// durable. Thread-safe; stateless but for the threads that read artifacts.
class JobService : public v1::JobService::CallbackService {
 public:
  /// `loop` is the core's. The core outlives every call: the server stops first.
  JobService(boost::asio::any_io_executor loop, jobs::Core& core, std::string artifact_root);
  /// Waits for artifact reads in progress.
  ~JobService() override;

  grpc::ServerUnaryReactor* SubmitJob(grpc::CallbackServerContext* context,
                                      const v1::SubmitJobRequest* request,
                                      v1::SubmitJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::CancelJobResponse* response) override;
  grpc::ServerUnaryReactor* ExplainJob(grpc::CallbackServerContext* context,
                                       const v1::ExplainJobRequest* request,
                                       v1::ExplainJobResponse* response) override;
  grpc::ServerUnaryReactor* PlanJob(grpc::CallbackServerContext* context,
                                    const v1::PlanJobRequest* request,
                                    v1::PlanJobResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* ListArtifacts(grpc::CallbackServerContext* context,
                                          const v1::ListArtifactsRequest* request,
                                          v1::ListArtifactsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::WatchAllResponse>* WatchAll(
      grpc::CallbackServerContext* context, const v1::WatchAllRequest* request) override;
  grpc::ServerWriteReactor<v1::FetchArtifactResponse>* FetchArtifact(
      grpc::CallbackServerContext* context, const v1::FetchArtifactRequest* request) override;

 private:
  boost::asio::any_io_executor loop_;
  jobs::Core& core_;  // Outlives every call.
  const std::string artifact_root_;
  boost::asio::thread_pool disk_;
};

}  // namespace tundish::api
