#include "tests/fakes/fake_coordinator.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tundish::fakes {

namespace {
constexpr std::chrono::seconds kLimit{30};
}

/// A store call that a test answers.
class FakeCoordinator::StoreCall : public grpc::ServerUnaryReactor {
 public:
  StoreCall(FakeCoordinator& fake, const v1::StoreRequest& asked, v1::StoreReply& answer)
      : request(asked), reply(answer), fake_(fake), key_(asked.key()) {
    std::lock_guard lock(fake_.mutex_);
    fake_.calls_[key_] = this;
    fake_.changed_.notify_all();
  }

  void OnCancel() override {
    {
      std::lock_guard lock(fake_.mutex_);
      const auto found = fake_.calls_.find(key_);
      if (found == fake_.calls_.end() || found->second != this) return;  // Answered already.
      fake_.calls_.erase(found);
      fake_.cancelled_.push_back(key_);
      fake_.changed_.notify_all();
    }
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
  }

  void OnDone() override { delete this; }

  const v1::StoreRequest& request;
  v1::StoreReply& reply;

 private:
  FakeCoordinator& fake_;
  const std::string key_;
};

class FakeCoordinator::Service
    : public v1::NodeService::WithCallbackMethod_RendezvousStore<v1::NodeService::Service> {
 public:
  explicit Service(FakeCoordinator& fake) : fake_(fake) {}

  grpc::Status Connect(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::AgentMessage>* stream) override {
    v1::AgentMessage message;
    while (stream->Read(&message)) {
      std::lock_guard lock(fake_.mutex_);
      if (message.has_register_()) {
        v1::CoordinatorMessage reply;
        reply.mutable_register_reply()->set_heartbeat_interval_ms(100);
        stream->Write(reply);
        fake_.stream_ = stream;
      }
      for (const v1::RankReport& report : message.reports().reports()) {
        v1::AgentMessage single;
        single.set_node(message.node());
        single.set_incarnation(message.incarnation());
        *single.mutable_reports()->add_reports() = report;
        fake_.messages_.push_back(std::move(single));
      }
      if (!message.has_reports()) fake_.messages_.push_back(message);
      fake_.changed_.notify_all();
    }
    std::lock_guard lock(fake_.mutex_);
    if (fake_.stream_ == stream) fake_.stream_ = nullptr;
    return grpc::Status::OK;
  }

  grpc::ServerUnaryReactor* RendezvousStore(grpc::CallbackServerContext*,
                                            const v1::StoreRequest* request,
                                            v1::StoreReply* reply) override {
    return new StoreCall(fake_, *request, *reply);
  }

 private:
  FakeCoordinator& fake_;
};

FakeCoordinator::FakeCoordinator() : service_(std::make_unique<Service>(*this)) {
  Start();
}

FakeCoordinator::~FakeCoordinator() {
  Stop();
}

void FakeCoordinator::Start() {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(address(), grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
}

void FakeCoordinator::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_ = nullptr;
}

bool FakeCoordinator::Send(const v1::CoordinatorMessage& message) {
  std::lock_guard lock(mutex_);
  return stream_ != nullptr && stream_->Write(message);
}

std::optional<v1::AgentMessage> FakeCoordinator::Wait(const Wanted& wanted, size_t* from) {
  std::unique_lock lock(mutex_);
  size_t at = from == nullptr ? 0 : *from;
  const bool found = changed_.wait_for(lock, kLimit, [&] {
    while (at < messages_.size() && !wanted(messages_[at])) ++at;
    return at < messages_.size();
  });
  if (!found) return std::nullopt;
  if (from != nullptr) *from = at + 1;
  return messages_[at];
}

size_t FakeCoordinator::seen() const {
  std::lock_guard lock(mutex_);
  return messages_.size();
}

std::string FakeCoordinator::Transcript() const {
  std::lock_guard lock(mutex_);
  std::string text;
  for (const v1::AgentMessage& message : messages_) {
    if (!message.has_heartbeat()) text += message.ShortDebugString() + "\n";
  }
  return text;
}

std::optional<v1::StoreRequest> FakeCoordinator::WaitForStoreCall(const std::string& key) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kLimit, [&] { return calls_.contains(key); })) return std::nullopt;
  return calls_[key]->request;
}

void FakeCoordinator::AnswerStoreCall(const std::string& key, const grpc::Status& status,
                                      const std::string& value) {
  std::unique_lock lock(mutex_);
  const auto found = calls_.find(key);
  if (found == calls_.end()) return;
  StoreCall* call = found->second;
  calls_.erase(found);
  lock.unlock();
  call->reply.set_value(value);
  call->Finish(status);
}

bool FakeCoordinator::WaitForCancelledStoreCall(const std::string& key) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kLimit,
                           [&] { return std::ranges::find(cancelled_, key) != cancelled_.end(); });
}

}  // namespace tundish::fakes
