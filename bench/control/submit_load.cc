#include "bench/control/submit_load.h"

#include <utility>

#include <fmt/core.h>

namespace tundish::bench {

using Clock = std::chrono::steady_clock;

v1::JobSpec SmallSpec(uint64_t seed) {
  v1::JobSpec spec;
  spec.set_name("weekly");
  spec.mutable_data()->set_folder("/images");
  spec.mutable_model()->set_preset("vit_cell");
  spec.mutable_training()->set_steps(1000);
  spec.mutable_training()->set_global_batch(16);
  spec.mutable_training()->set_seed(seed);
  return spec;
}

std::shared_ptr<grpc::Channel> OwnChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

struct SubmitLoad::Client {
  std::unique_ptr<v1::JobService::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  v1::SubmitJobRequest request;
  v1::SubmitJobResponse response;
  Clock::time_point began;
};

SubmitLoad::SubmitLoad(Options options) : options_(std::move(options)) {}
SubmitLoad::~SubmitLoad() = default;

void SubmitLoad::Start() {
  began_ = Clock::now();
  running_ = options_.clients;
  for (int i = 0; i < options_.clients; ++i) {
    auto& client = clients_.emplace_back(std::make_unique<Client>());
    client->stub = v1::JobService::NewStub(OwnChannel(options_.address));
  }
  for (auto& client : clients_) Next(*client);
}

void SubmitLoad::Next(Client& client) {
  if (stopping_) {
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) changed_.notify_all();
    return;
  }
  const uint64_t number = next_++ / static_cast<uint64_t>(options_.copies);
  client.request.set_request_id(fmt::format("request-{}", number));
  *client.request.mutable_spec() = SmallSpec(number);
  client.began = Clock::now();
  Call(client);
}

void SubmitLoad::Call(Client& client) {
  client.context = std::make_unique<grpc::ClientContext>();
  client.context->set_wait_for_ready(true);
  client.context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  client.response.Clear();
  client.stub->async()->SubmitJob(
      client.context.get(), &client.request, &client.response,
      [this, &client](const grpc::Status& status) { OnAnswer(client, status); });
}

void SubmitLoad::OnAnswer(Client& client, const grpc::Status& status) {
  if (status.ok()) {
    const std::chrono::duration<double, std::milli> took = Clock::now() - client.began;
    {
      const std::lock_guard lock(mutex_);
      ++result_.answers;
      result_.latency_ms.push_back(took.count());
      const auto [known, added] =
          result_.jobs.emplace(client.request.request_id(), client.response.job_id());
      if (!added && known->second != client.response.job_id()) {
        result_.violations.push_back(fmt::format("{} got job {} and job {}", known->first,
                                                 known->second, client.response.job_id()));
      }
    }
    changed_.notify_all();
    return Next(client);
  }
  const grpc::StatusCode code = status.error_code();
  const bool repeat = code == grpc::StatusCode::UNAVAILABLE ||
                      code == grpc::StatusCode::CANCELLED ||
                      code == grpc::StatusCode::DEADLINE_EXCEEDED;
  {
    const std::lock_guard lock(mutex_);
    ++result_.repeats;
    if (!repeat) {
      result_.violations.push_back(fmt::format("{}: code {}: {}", client.request.request_id(),
                                               static_cast<int>(code), status.error_message()));
    }
  }
  // Only an acknowledged request is done with: its id says so to the coordinator.
  return repeat ? Call(client) : Next(client);
}

void SubmitLoad::AwaitAnswers(uint64_t count) {
  std::unique_lock lock(mutex_);
  const uint64_t target = result_.answers + count;
  changed_.wait(lock, [&] { return result_.answers >= target; });
}

SubmitLoad::Result SubmitLoad::Finish() {
  stopping_ = true;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return running_ == 0; });
  result_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  return std::move(result_);
}

}  // namespace tundish::bench
