#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <grpcpp/grpcpp.h>

#include "tundish/v1/job_service.grpc.pb.h"
#include "tundish/v1/node.grpc.pb.h"

namespace tundish::client {

/// A coordinator as a client sees it. Connects with the first call; a call fails at once when
/// nothing listens. Thread-safe.
class Coordinator {
 public:
  /// `address`: "HOST:PORT" or "unix:PATH".
  explicit Coordinator(std::string address);

  template <class Service, class Request, class Response>
  using Method = grpc::Status (Service::*)(grpc::ClientContext*, const Request&, Response*);

  /// One unary call, for example `Call(&v1::JobService::StubInterface::GetJob, request)`.
  /// Errors: as Explain().
  template <class Service, class Request, class Response>
  absl::StatusOr<Response> Call(Method<Service, Request, Response> method, const Request& request,
                                std::chrono::milliseconds limit = kCallLimit) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    Response response;
    const grpc::Status status =
        (Stub(static_cast<Service*>(nullptr)).*method)(&context, request, &response);
    if (!status.ok()) return Explain(status, context);
    return response;
  }

  /// An ended call's error for people, its code kept. Unavailable and DeadlineExceeded, which both
  /// become Unavailable, name the address and how to start a coordinator; InvalidField details
  /// become `field: "value" is not right; expected …`; Unimplemented, and any error without a text,
  /// names the code and the address it came from.
  absl::Status Explain(const grpc::Status& status, const grpc::ClientContext& context) const;

  v1::JobService::StubInterface& jobs() { return *jobs_; }
  v1::ClusterService::StubInterface& cluster() { return *cluster_; }
  grpc::Channel& channel() { return *channel_; }
  const std::string& address() const { return address_; }

  /// How long a unary call may take.
  static constexpr std::chrono::milliseconds kCallLimit{20'000};

 private:
  v1::JobService::StubInterface& Stub(v1::JobService::StubInterface*) { return *jobs_; }
  v1::ClusterService::StubInterface& Stub(v1::ClusterService::StubInterface*) { return *cluster_; }

  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::StubInterface> jobs_;
  std::unique_ptr<v1::ClusterService::StubInterface> cluster_;
};

}  // namespace tundish::client
