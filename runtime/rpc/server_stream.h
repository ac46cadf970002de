#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <grpcpp/grpcpp.h>

#include "runtime/rpc/outbox.h"

namespace tundish::rpc {

/// The writing side of a server-streaming call as the event loop sees it. Shared: gRPC keeps it
/// until the call is over (OnDone), the loop for as long as it likes; sending after the end does
/// nothing. Hold a shared_ptr across every call.
template <class Out>
class ServerStream : public grpc::ServerWriteReactor<Out> {
 public:
  /// `on_drained` runs on `executor` after every write, `on_done` once when the call is over,
  /// however it ended.
  struct Callbacks {
    std::function<void()> on_drained;
    std::function<void()> on_done;
  };

  static std::shared_ptr<ServerStream> Make(boost::asio::any_io_executor executor,
                                            size_t bound_bytes) {
    auto stream = std::shared_ptr<ServerStream>(new ServerStream(std::move(executor), bound_bytes));
    stream->self_ = stream;
    return stream;
  }

  /// Call once, on the executor, before or after the first Send. A call that is over by then gets
  /// its `on_done` at once.
  void Listen(Callbacks callbacks) {
    callbacks_ = std::move(callbacks);
    if (done_) boost::asio::post(executor_, std::exchange(callbacks_, {}).on_done);
  }

  /// See Outbox.
  bool Send(Out message) { return outbox_.Send(std::move(message)); }
  bool SendAnyway(Out message) { return outbox_.SendAnyway(std::move(message)); }
  void End(grpc::Status status) { outbox_.End(std::move(status)); }
  void Abandon(grpc::Status status) { outbox_.Abandon(std::move(status)); }
  size_t queued_bytes() const { return outbox_.queued_bytes(); }

  void OnWriteDone(bool ok) override {
    outbox_.WriteDone(ok);
    boost::asio::post(executor_, [self = this->self_] {
      if (self && self->callbacks_.on_drained) self->callbacks_.on_drained();
    });
  }

  void OnCancel() override {
    outbox_.Abandon(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the client"));
  }

  void OnDone() override {
    boost::asio::post(executor_, [self = std::move(self_)] {
      self->done_ = true;
      if (auto on_done = std::exchange(self->callbacks_, {}).on_done) on_done();
    });
  }

 private:
  ServerStream(boost::asio::any_io_executor executor, size_t bound_bytes)
      : executor_(std::move(executor)), outbox_(*this, bound_bytes) {}

  boost::asio::any_io_executor executor_;
  Outbox<grpc::ServerWriteReactor<Out>, Out> outbox_;
  std::shared_ptr<ServerStream> self_;  // Until OnDone, which gRPC calls exactly once.
  Callbacks callbacks_;                 // On the executor only.
  bool done_ = false;                   // On the executor only.
};

/// A bidirectional call as the event loop sees it. Messages arrive on the executor in order, one at
/// a time: the next is read only after the handler returned, so a slow loop slows the sender. Hold
/// a shared_ptr across every call.
template <class In, class Out>
class BidiStream : public grpc::ServerBidiReactor<In, Out> {
 public:
  struct Callbacks {
    std::function<void(In)> on_message;
    /// Once, when the call is over, however it ended.
    std::function<void()> on_done;
  };

  static std::shared_ptr<BidiStream> Make(boost::asio::any_io_executor executor,
                                          size_t bound_bytes) {
    auto stream = std::shared_ptr<BidiStream>(new BidiStream(std::move(executor), bound_bytes));
    stream->self_ = stream;
    return stream;
  }

  /// Starts reading. Call once, before the reactor is handed to gRPC.
  void Listen(Callbacks callbacks) {
    callbacks_ = std::move(callbacks);
    this->StartRead(&incoming_);
  }

  /// See Outbox.
  bool Send(Out message) { return outbox_.Send(std::move(message)); }
  void End(grpc::Status status) { outbox_.End(std::move(status)); }
  void Abandon(grpc::Status status) { outbox_.Abandon(std::move(status)); }

  void OnReadDone(bool ok) override {
    if (!ok) {  // The peer has finished or is gone.
      outbox_.End(grpc::Status::OK);
      return;
    }
    boost::asio::post(executor_, [self = self_] {
      if (!self->callbacks_.on_message) return;
      self->callbacks_.on_message(std::exchange(self->incoming_, In()));
      self->outbox_.IfOpen([&] { self->StartRead(&self->incoming_); });
    });
  }

  void OnWriteDone(bool ok) override { outbox_.WriteDone(ok); }

  void OnCancel() override {
    outbox_.Abandon(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the client"));
  }

  void OnDone() override {
    boost::asio::post(executor_, [self = std::move(self_)] {
      if (auto on_done = std::exchange(self->callbacks_, {}).on_done) on_done();
    });
  }

 private:
  BidiStream(boost::asio::any_io_executor executor, size_t bound_bytes)
      : executor_(std::move(executor)), outbox_(*this, bound_bytes) {}

  boost::asio::any_io_executor executor_;
  Outbox<grpc::ServerBidiReactor<In, Out>, Out> outbox_;
  std::shared_ptr<BidiStream> self_;  // Until OnDone, which gRPC calls exactly once.
  Callbacks callbacks_;               // On the executor only, once reading has started.
  In incoming_;
};

}  // namespace tundish::rpc
