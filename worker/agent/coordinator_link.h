#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "tundish/v1/node.grpc.pb.h"
#include "worker/agent/coordinator_stream.h"
#include "worker/agent/uplink_queue.h"

namespace tundish::agent {

/// Keeps one stream to the coordinator open for ever: registers, sends heartbeats at the interval
/// it is told, passes on facts and reports, comes back with jittered back-off. Runs on one
/// single-threaded io_context; methods and callbacks are called there.
class CoordinatorLink {
 public:
  struct Callbacks {
    /// What to register with, asked for at every new stream.
    std::function<v1::Register()> registration;
    /// An order; never RegisterReply.
    std::function<void(const v1::CoordinatorMessage&)> on_message;
    /// Registered, or lost.
    std::function<void(bool connected)> on_connected;
    /// The coordinator knows this fact (see UplinkQueue::kSettled).
    std::function<void(const v1::AgentMessage&)> on_settled;
    /// Reports were refused for want of room; now there is room.
    std::function<void()> on_room;
  };

  /// `stub` outlives the link. `incarnation` is this agent start's ULID.
  CoordinatorLink(boost::asio::io_context& io, v1::NodeService::StubInterface& stub,
                  std::string node, std::string incarnation, Callbacks callbacks);

  void Start();

  /// Tells a fact, now or as soon as there is a stream.
  void Tell(v1::AgentMessage fact, std::chrono::steady_clock::time_point since);

  /// Sends an answer on the present stream; without one it is dropped.
  void Answer(v1::AgentMessage answer);

  /// Passes on a report. False if there is no stream or no room: its rank will be asked again.
  bool Report(v1::RankReport report);

  bool connected() const { return connected_; }

  /// Sends what is queued if there is a stream, ends it, and then calls `done` on the executor,
  /// after `limit` at the latest. Nothing else is called back any more. Once.
  void Close(std::chrono::milliseconds limit, std::function<void()> done);

 private:
  void Open();
  void OnMessage(const v1::CoordinatorMessage& message);
  void OnDone(const grpc::Status& status);
  void OnHeartbeatTimer();
  void ArmHeartbeat(std::chrono::milliseconds interval);
  /// Writes the next message if the stream is free.
  void Pump();
  void FinishClose();

  boost::asio::io_context& io_;
  v1::NodeService::StubInterface& stub_;
  const std::string node_;
  const std::string incarnation_;
  Callbacks callbacks_;
  UplinkQueue queue_;
  std::shared_ptr<CoordinatorStream> stream_;  // Null between streams.
  boost::asio::steady_timer retry_;
  boost::asio::steady_timer heartbeat_;  // Until RegisterReply: the limit for it.
  boost::asio::steady_timer close_limit_;
  std::chrono::milliseconds heartbeat_interval_{0};
  std::function<void()> closed_;
  std::minstd_rand random_;
  int failures_ = 0;
  bool connected_ = false;
  bool heartbeat_due_ = false;
  bool reports_refused_ = false;
  bool closing_ = false;
};

}  // namespace tundish::agent
