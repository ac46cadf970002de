#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "tundish/v1/rank.grpc.pb.h"
#include "worker/engine/device/epoch_store.h"

namespace tundish::rank {

/// Where ranks of one (job, job_epoch) leave each other their addresses: every call goes through
/// the agent to the coordinator, which refuses old job_epochs. While agent or coordinator are away,
/// calls wait, up to the store's timeout. Errors (c10::DistStoreError): the epoch is over, here or
/// there; the time is up. Thread-safe; blocks the calling thread.
class RendezvousStore final : public device::EpochStore {
 public:
  RendezvousStore(std::shared_ptr<grpc::Channel> channel, std::string job_id, std::string worker_id,
                  uint32_t job_epoch);

  void Close() noexcept override;

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  /// The coordinator does not count keys: throws c10::NotImplementedError. c10d only asks in its
  /// own tests.
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  using TimePoint = std::chrono::system_clock::time_point;

  v1::StoreRequest NewRequest(const std::string& key) const;
  v1::StoreReply Get(const std::string& key, TimePoint deadline);
  v1::StoreReply Call(const v1::StoreRequest& request, TimePoint deadline);
  grpc::Status CallOnce(const v1::StoreRequest& request, TimePoint deadline, v1::StoreReply& reply);
  TimePoint Deadline() const;

  const std::unique_ptr<v1::RankService::Stub> stub_;
  const std::string job_id_;
  const std::string worker_id_;
  const uint32_t job_epoch_;
  std::mutex mutex_;
  std::condition_variable closing_;
  bool closed_ = false;                       // Guarded by mutex_.
  std::set<grpc::ClientContext*> in_flight_;  // Guarded by mutex_; of the threads inside CallOnce.
};

}  // namespace tundish::rank
