#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "tundish/v1/node.grpc.pb.h"

namespace tundish::fakes {

/// A NodeService that writes down what agents say and sends what a test wants. Every wait is for a
/// message and ends after 30 s.
class FakeCoordinator {
 public:
  FakeCoordinator();
  ~FakeCoordinator();

  /// Listens; on any port at first, on the same one later. Messages seen are kept.
  void Start();
  /// Breaks every stream and stops listening.
  void Stop();

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  /// Sends to the agent whose stream is open. False if there is none.
  bool Send(const v1::CoordinatorMessage& message);

  /// The first message from position `*from` on that `wanted` accepts, or nullopt; `*from` then
  /// points behind it. WorkerReports are seen as one message per report.
  using Wanted = std::function<bool(const v1::AgentMessage&)>;
  std::optional<v1::AgentMessage> Wait(const Wanted& wanted, size_t* from = nullptr);

  /// How many messages were seen.
  size_t seen() const;
  /// All of them as text, for a failing test.
  std::string Transcript() const;

  /// Waits for a store call of `key` that is not answered yet.
  std::optional<v1::StoreRequest> WaitForStoreCall(const std::string& key);
  void AnswerStoreCall(const std::string& key, const grpc::Status& status,
                       const std::string& value);
  /// True once the caller has given up a call of `key` (cancelled or past its deadline).
  bool WaitForCancelledStoreCall(const std::string& key);

 private:
  class Service;
  class StoreCall;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::AgentMessage> messages_;
  grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::AgentMessage>* stream_ = nullptr;
  std::map<std::string, StoreCall*> calls_;
  std::vector<std::string> cancelled_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace tundish::fakes
