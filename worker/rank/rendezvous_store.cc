#include "worker/rank/rendezvous_store.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/core.h>

namespace tundish::rank {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{1000};
constexpr int64_t kLongestWaitMs = 600'000;  // StoreGet.timeout_ms.
// How much later than the coordinator's own limit the call gives up.
constexpr milliseconds kGrace{2000};

[[noreturn]] void Fail(const std::string& message) {
  C10_THROW_ERROR(DistStoreError, message);
}

}  // namespace

RendezvousStore::RendezvousStore(std::shared_ptr<grpc::Channel> channel, std::string job_id,
                                 std::string worker_id, uint32_t job_epoch)
    : stub_(v1::RankService::NewStub(channel)),
      job_id_(std::move(job_id)),
      worker_id_(std::move(worker_id)),
      job_epoch_(job_epoch) {}

void RendezvousStore::Close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (grpc::ClientContext* context : in_flight_) context->TryCancel();
  }
  closing_.notify_all();
}

c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() {
  return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
}

void RendezvousStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  v1::StoreRequest request = NewRequest(key);
  request.set_set(std::string(value.begin(), value.end()));
  Call(request, Deadline());
}

std::vector<uint8_t> RendezvousStore::get(const std::string& key) {
  const std::string value = Get(key, Deadline()).value();
  return {value.begin(), value.end()};
}

int64_t RendezvousStore::add(const std::string& key, int64_t value) {
  v1::StoreRequest request = NewRequest(key);
  request.set_add(value);
  return Call(request, Deadline()).number();
}

bool RendezvousStore::deleteKey(const std::string& key) {
  v1::StoreRequest request = NewRequest(key);
  request.mutable_delete_();
  return Call(request, Deadline()).found();
}

bool RendezvousStore::check(const std::vector<std::string>& keys) {
  return std::ranges::all_of(keys, [this](const std::string& key) {
    v1::StoreRequest request = NewRequest(key);
    request.mutable_check();
    return Call(request, Deadline()).found();
  });
}

int64_t RendezvousStore::getNumKeys() {
  C10_THROW_ERROR(NotImplementedError, "the rendezvous store does not count keys");
}

void RendezvousStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void RendezvousStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const TimePoint deadline = std::chrono::system_clock::now() + timeout;
  for (const std::string& key : keys) Get(key, deadline);
}

v1::StoreRequest RendezvousStore::NewRequest(const std::string& key) const {
  v1::StoreRequest request;
  request.set_job_id(job_id_);
  request.set_job_epoch(job_epoch_);
  request.set_worker_id(worker_id_);
  request.set_key(key);
  return request;
}

RendezvousStore::TimePoint RendezvousStore::Deadline() const {
  return std::chrono::system_clock::now() + timeout_;
}

v1::StoreReply RendezvousStore::Get(const std::string& key, TimePoint deadline) {
  v1::StoreRequest request = NewRequest(key);
  const auto left =
      std::chrono::duration_cast<milliseconds>(deadline - std::chrono::system_clock::now());
  request.mutable_get()->set_timeout_ms(
      static_cast<uint32_t>(std::clamp<int64_t>(left.count(), 0, kLongestWaitMs)));
  return Call(request, deadline);
}

v1::StoreReply RendezvousStore::Call(const v1::StoreRequest& request, TimePoint deadline) {
  milliseconds pause = kFirstPause;
  while (true) {
    v1::StoreReply reply;
    const grpc::Status status = CallOnce(request, deadline + kGrace, reply);
    if (status.ok()) return reply;
    std::unique_lock lock(mutex_);
    if (closed_) Fail(fmt::format("rendezvous of job_epoch {} was stopped", job_epoch_));
    // A lost agent or coordinator comes back. An addition must not be made twice, so its caller
    // hears of the loss.
    const bool again = status.error_code() == grpc::StatusCode::UNAVAILABLE && !request.has_add();
    if (!again || std::chrono::system_clock::now() + pause > deadline) {
      Fail(fmt::format("rendezvous of job_epoch {}, key '{}': {} (code {})", job_epoch_,
                       request.key(), status.error_message(),
                       static_cast<int>(status.error_code())));
    }
    closing_.wait_for(lock, pause, [this] { return closed_; });
    pause = std::min(2 * pause, kLongestPause);
  }
}

grpc::Status RendezvousStore::CallOnce(const v1::StoreRequest& request, TimePoint deadline,
                                       v1::StoreReply& reply) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(deadline);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return {grpc::StatusCode::CANCELLED, "stopped"};
    in_flight_.insert(&context);
  }
  const grpc::Status status = stub_->RendezvousStore(&context, request, &reply);
  const std::lock_guard lock(mutex_);
  in_flight_.erase(&context);
  return status;
}

}  // namespace tundish::rank
