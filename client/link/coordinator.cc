#include "client/link/coordinator.h"

#include <fmt/core.h>

#include "runtime/rpc/status.h"

namespace tundish::client {
namespace {

/// Details the server attached, one `field: …` per wrong field, joined; empty if there are none.
std::string InvalidFields(const grpc::ClientContext& context) {
  constexpr size_t kMostShown = 5;
  const auto [first, last] =
      context.GetServerTrailingMetadata().equal_range("tundish-invalid-field-bin");
  std::string text;
  size_t count = 0;
  for (auto it = first; it != last; ++it, ++count) {
    v1::InvalidField field;
    if (count >= kMostShown || !field.ParseFromArray(it->second.data(), it->second.size())) {
      continue;
    }
    text += fmt::format(
        "{}{}: {} is not right; expected {}", text.empty() ? "" : "; also ", field.field(),
        field.value().empty() ? "nothing" : fmt::format("\"{}\"", field.value()), field.expected());
  }
  if (count > kMostShown) text += fmt::format("; and {} more", count - kMostShown);
  return text;
}

}  // namespace

Coordinator::Coordinator(std::string address) : address_(std::move(address)) {
  grpc::ChannelArguments arguments;
  // Coordinators are local or on the cluster's own network: a proxy is never meant.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A restarted coordinator is found again soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // A vanished host is noticed by a silent watcher, at a rate every gRPC server tolerates.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 330'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  channel_ = grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
  jobs_ = v1::JobService::NewStub(channel_);
  cluster_ = v1::ClusterService::NewStub(channel_);
}

absl::Status Coordinator::Explain(const grpc::Status& status,
                                  const grpc::ClientContext& context) const {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      // With a live connection it is the coordinator that says so.
      if (channel_->GetState(false) == GRPC_CHANNEL_READY) {
        return absl::UnavailableError(fmt::format("the coordinator at {} cannot do it now: {}",
                                                  address_, status.error_message()));
      }
      return absl::UnavailableError(
          fmt::format("no coordinator answers at {}; start one with `tundish up` or name another "
                      "with --coordinator HOST:PORT",
                      address_));
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::UnavailableError(
          fmt::format("the coordinator at {} did not answer in time", address_));
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::UnimplementedError(fmt::format(
          "{} answered UNIMPLEMENTED ({}); is that the gRPC address of a tundishd as new as this "
          "tundish?",
          address_, status.error_message().empty() ? "no reason given" : status.error_message()));
    case grpc::StatusCode::INVALID_ARGUMENT:
      if (std::string fields = InvalidFields(context); !fields.empty()) {
        return absl::InvalidArgumentError(fields);
      }
      break;
    default:
      break;
  }
  if (!status.error_message().empty()) return rpc::FromGrpc(status);
  const absl::StatusCode code = rpc::FromGrpc(status).code();
  return absl::Status(code, fmt::format("{} answered {} and gave no reason", address_,
                                        absl::StatusCodeToString(code)));
}

}  // namespace tundish::client
