// Stands in for tundish-rank in tests of the agent: attaches, reports Ready, and does what orders
// say. It tells what it received in LogLine reports. An Assignment's job_folder is a script of one
// command:
//
//     ""                     report Formed
//     exit CODE              print a line to standard error and leave with CODE
//     get KEY MILLISECONDS   a store call that waits; its outcome is logged
//     cancel KEY             a store call that is cancelled when ack 99 comes
//     add KEY                a store call that adds 1
//
//     step                   report a StepDone
//
// With --spare it stands by until a Become order, and says then for which data it was prepared.
// TUNDISH_RANK_FAKE_SECRET shows another secret; with TUNDISH_RANK_FAKE_START it leaves at once.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "tundish/v1/rank.grpc.pb.h"

namespace {

namespace v1 = tundish::v1;
using Stream = grpc::ClientReaderWriter<v1::RankReport, v1::RankOrder>;

class FakeRank {
 public:
  FakeRank(std::map<std::string, std::string> flags, bool spare)
      : spare_(spare),
        flags_(std::move(flags)),
        stub_(v1::RankService::NewStub(
            grpc::CreateChannel(flags_["--agent"], grpc::InsecureChannelCredentials()))) {
    const char* secret = std::getenv("TUNDISH_WORKER_SECRET");
    const char* other = std::getenv("TUNDISH_RANK_FAKE_SECRET");
    secret_ = other != nullptr ? other : (secret == nullptr ? "" : secret);
  }

  /// Attaches again and again; ends when the agent refuses it.
  int Run() {
    for (;;) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      const auto stream = stub_->Attach(&context);
      Use(stream.get());
      v1::RankReport hello;
      hello.mutable_hello()->set_secret(secret_);
      hello.mutable_hello()->set_pid(static_cast<uint32_t>(getpid()));
      Send(std::move(hello), 0);
      if (!spare_) SayReady();
      v1::RankOrder order;
      while (stream->Read(&order)) Obey(order);
      Use(nullptr);
      const grpc::Status status = stream->Finish();
      std::cerr << "attachment ended: " << status.error_code() << " " << status.error_message()
                << std::endl;
      if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) return 7;
    }
  }

 private:
  void SayReady() {
    v1::RankReport ready;
    ready.mutable_ready()->set_pid(static_cast<uint32_t>(getpid()));
    Send(std::move(ready));
  }

  void Use(Stream* stream) {
    std::lock_guard lock(mutex_);
    stream_ = stream;
  }

  void Send(v1::RankReport report, std::optional<uint64_t> number = {}) {
    std::lock_guard lock(mutex_);
    report.set_worker_id(flags_["--worker-id"]);
    report.set_job_id(flags_["--job-id"]);
    report.set_job_epoch(job_epoch_);
    report.set_number(number ? *number : ++last_number_);
    if (stream_ != nullptr) stream_->Write(report);
  }

  void Log(const std::string& text) {
    v1::RankReport report;
    report.mutable_log()->set_text(text);
    Send(std::move(report));
  }

  void Obey(const v1::RankOrder& order) {
    switch (order.body_case()) {
      case v1::RankOrder::kAssign: {
        std::unique_lock lock(mutex_);
        job_epoch_ = order.job_epoch();
        lock.unlock();
        return Perform(order.assign().job_folder());
      }
      case v1::RankOrder::kStop: {
        v1::RankReport report;
        report.mutable_stopped()->set_cause("stop " + std::to_string(order.job_epoch()));
        return Send(std::move(report));
      }
      case v1::RankOrder::kExit:
        std::_Exit(0);
      case v1::RankOrder::kAck:
        if (order.ack().number() == 99 && call_) return call_->TryCancel();
        return Log("ack " + std::to_string(order.ack().number()));
      case v1::RankOrder::kResend:
        return Log("resend");
      case v1::RankOrder::kPrepare:
        prepared_ = order.prepare().data().manifest_hash();
        return;
      case v1::RankOrder::kBecome: {
        std::unique_lock lock(mutex_);
        flags_["--worker-id"] = order.worker_id();
        secret_ = order.become().secret();
        spare_ = false;
        lock.unlock();
        SayReady();
        return Log("prepared for " + prepared_);
      }
      case v1::RankOrder::BODY_NOT_SET:
        return Log("empty order");
    }
  }

  void Perform(const std::string& script) {
    std::istringstream words(script);
    std::string command;
    std::string key;
    uint32_t number = 0;
    words >> command >> key >> number;
    if (command.empty()) {
      v1::RankReport report;
      report.mutable_formed();
      return Send(std::move(report));
    }
    if (command == "step") {
      v1::RankReport report;
      report.mutable_step();
      return Send(std::move(report));
    }
    if (command == "exit") {
      std::cerr << "leaving with " << key << std::endl;
      std::_Exit(std::stoi(key));
    }
    v1::StoreRequest request;
    request.set_job_id(flags_["--job-id"]);
    request.set_worker_id(flags_["--worker-id"]);
    request.set_job_epoch(job_epoch_);
    request.set_key(key);
    call_ = std::make_shared<grpc::ClientContext>();
    if (command == "add") {
      request.set_add(1);
    } else if (command == "cancel") {
      request.mutable_get()->set_timeout_ms(60'000);
    } else {
      request.mutable_get()->set_timeout_ms(number);
      call_->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(number));
    }
    // The reading thread goes on; this one ends with the process at the latest.
    std::thread([this, call = call_, request] {
      v1::StoreReply reply;
      const grpc::Status status = stub_->RendezvousStore(call.get(), request, &reply);
      Log("store " + std::to_string(status.error_code()) + " " + reply.value() + "|" +
          status.error_message());
    }).detach();
  }

  bool spare_;
  std::string prepared_ = "nothing";
  std::map<std::string, std::string> flags_;
  const std::unique_ptr<v1::RankService::Stub> stub_;
  std::string secret_;
  std::shared_ptr<grpc::ClientContext> call_;
  std::mutex mutex_;
  Stream* stream_ = nullptr;
  uint32_t job_epoch_ = 0;
  uint64_t last_number_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  for (const auto& [flag, value] : flags) std::cerr << flag << " " << value << std::endl;
  if (std::getenv("TUNDISH_RANK_FAKE_START") != nullptr) return 3;
  const bool spare = std::string(argv[argc - 1]) == "--spare";
  if (spare && std::getenv("TUNDISH_RANK_FAKE_SPARE_FAILS") != nullptr) return 3;
  return FakeRank(std::move(flags), spare).Run();
}
