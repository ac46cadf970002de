#pragma once

#include <functional>
#include <memory>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/any_io_executor.hpp>
#include <grpcpp/grpcpp.h>

#include "tundish/v1/node.grpc.pb.h"

namespace tundish::agent {

/// One Connect call as the event loop sees it. Every method is called, and every callback runs, on
/// the executor. The next message is read after the handler of the last one returned. Lives until
/// the call is over, whoever holds it.
class CoordinatorStream : public grpc::ClientBidiReactor<v1::AgentMessage, v1::CoordinatorMessage> {
 public:
  struct Callbacks {
    std::function<void(const v1::CoordinatorMessage&)> on_message;
    /// A write has left; another may start.
    std::function<void()> on_written;
    /// Once, at the end; nothing follows.
    std::function<void(const grpc::Status&)> on_done;
  };

  static std::shared_ptr<CoordinatorStream> Open(v1::NodeService::StubInterface& stub,
                                                 boost::asio::any_io_executor executor,
                                                 Callbacks callbacks);

  /// True while no write may start: one is under way, or the stream is ending.
  bool busy() const { return writing_ || ended_ || finishing_; }

  /// Requires !busy().
  void Write(v1::AgentMessage message);

  /// Tells the coordinator that nothing more comes, after the write under way.
  void FinishWriting();

  /// Ends the call at once; on_done follows.
  void Cancel();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  explicit CoordinatorStream(boost::asio::any_io_executor executor, Callbacks callbacks);

  void EndOnLoop();

  boost::asio::any_io_executor executor_;
  Callbacks callbacks_;
  grpc::ClientContext context_;
  std::shared_ptr<CoordinatorStream> self_;  // Until OnDone, which gRPC calls exactly once.
  v1::CoordinatorMessage incoming_;
  v1::AgentMessage outgoing_;
  // On the executor only. A hold keeps OnDone away while the loop may still start reads and writes.
  bool writing_ = false;
  bool ended_ = false;
  bool finishing_ = false;
};

}  // namespace tundish::agent
