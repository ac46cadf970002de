#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "tundish/v1/rank.grpc.pb.h"

namespace tundish::rank {

/// The agent's end of a rank's socket: records reports, sends the orders it is given, and keeps a
/// rendezvous table in which job_epochs up to `dead_epoch` are refused.
class FakeAgent final : private v1::RankService::Service {
 public:
  explicit FakeAgent(const std::string& socket_path) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeAgent() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  void Order(v1::RankOrder order) {
    {
      const std::lock_guard lock(mutex_);
      orders_.push_back(std::move(order));
    }
    changed_.notify_all();
  }

  /// Numbers of the reports so far, Hello as 0, once there are `count`; what there is after 20 s.
  std::vector<uint64_t> WaitForReports(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return reports_.size() >= count; });
    std::vector<uint64_t> numbers;
    for (const v1::RankReport& report : reports_) numbers.push_back(report.number());
    return numbers;
  }

  v1::RankReport report(size_t index) {
    const std::lock_guard lock(mutex_);
    return reports_.at(index);
  }

  /// Returns once a Get waits for a key that is not there.
  void WaitForWaiter() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiters_ > 0; });
  }

  /// Answers every Hello from now on with PERMISSION_DENIED.
  void Refuse(std::string error) {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(error);
  }

  void SetDeadEpoch(uint32_t epoch) {
    {
      const std::lock_guard lock(mutex_);
      dead_epoch_ = epoch;
    }
    changed_.notify_all();
  }

 private:
  using Stream = grpc::ServerReaderWriter<v1::RankOrder, v1::RankReport>;

  grpc::Status Attach(grpc::ServerContext* context, Stream* stream) override {
    std::thread writer([&] { WriteOrders(*stream); });
    v1::RankReport report;
    while (stream->Read(&report)) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(report);
      changed_.notify_all();
      if (!refusal_.empty()) break;
    }
    {
      const std::lock_guard lock(mutex_);
      detached_ = true;
    }
    changed_.notify_all();
    writer.join();
    const std::lock_guard lock(mutex_);
    if (!refusal_.empty()) return {grpc::StatusCode::PERMISSION_DENIED, refusal_};
    return grpc::Status::OK;
  }

  void WriteOrders(Stream& stream) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || detached_ || !orders_.empty(); });
      if (closing_ || detached_) return;
      stream.Write(orders_.front());
      orders_.pop_front();
    }
  }

  grpc::Status RendezvousStore(grpc::ServerContext* context, const v1::StoreRequest* request,
                               v1::StoreReply* reply) override {
    std::unique_lock lock(mutex_);
    const auto refused = [&] { return request->job_epoch() <= dead_epoch_; };
    const std::string key = request->job_id() + "/" + request->key();
    if (request->has_get()) {
      ++waiters_;
      changed_.notify_all();
      const auto limit = std::chrono::milliseconds(request->get().timeout_ms());
      const bool there = changed_.wait_for(
          lock, limit, [&] { return closing_ || refused() || table_.contains(key); });
      --waiters_;
      if (!there) return {grpc::StatusCode::DEADLINE_EXCEEDED, "no such key in time"};
    }
    if (refused()) return {grpc::StatusCode::ABORTED, "current job_epoch is 9"};
    if (closing_) return {grpc::StatusCode::UNAVAILABLE, "closing"};
    reply->set_found(table_.contains(key));
    if (request->has_get()) reply->set_value(table_[key]);
    if (request->op_case() == v1::StoreRequest::kSet) table_[key] = request->set();
    if (request->op_case() == v1::StoreRequest::kDelete) table_.erase(key);
    if (request->op_case() == v1::StoreRequest::kAdd) {
      const std::string& old = table_[key];
      reply->set_number((old.empty() ? 0 : std::stoll(old)) + request->add());
      table_[key] = std::to_string(reply->number());
    }
    changed_.notify_all();
    return grpc::Status::OK;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::RankReport> reports_;
  std::deque<v1::RankOrder> orders_;
  std::map<std::string, std::string> table_;
  std::string refusal_;
  uint32_t dead_epoch_ = 0;
  int waiters_ = 0;
  bool closing_ = false;
  bool detached_ = false;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tundish::rank
