#include "worker/agent/agent.h"

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include <boost/asio/post.hpp>
#include <fmt/ranges.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include "runtime/base/check.h"
#include "runtime/base/ulid.h"
#include "runtime/metrics/process_usage.h"
#include "worker/agent/metric_table.h"

namespace tundish::agent {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

namespace {

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& coordinator) {
  grpc::ChannelArguments arguments;
  // The link has its own back-off; the channel's must not stretch it.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  return grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments);
}

std::vector<std::string> DeviceNames(const Host& host) {
  std::vector<std::string> names;
  for (const v1::Device& device : host.devices) names.push_back(device.name());
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agent>> Agent::Start(Options options) {
  if (absl::Status checked = CheckOptions(options); !checked.ok()) return checked;
  auto host = DescribeHost(options.devices, options.topology_file);
  if (!host.ok()) return host.status();
  if (absl::Status there = CheckDevicesExist(*host); !there.ok() && !options.assume_devices) {
    return there;
  }
  auto state = StateDir::Open(options.state_dir);
  if (!state.ok()) return state.status();
  auto agent =
      std::unique_ptr<Agent>(new Agent(std::move(options), *std::move(host), *std::move(state)));
  if (absl::Status listening = agent->Listen(); !listening.ok()) return listening;
  return agent;
}

Agent::Agent(Options options, Host host, std::unique_ptr<StateDir> state)
    : options_(std::move(options)),
      host_(std::move(host)),
      state_(std::move(state)),
      metrics_(MetricTable()),
      work_(asio::make_work_guard(io_)),
      stub_(v1::NodeService::NewStub(OpenChannel(options_.coordinator))),
      workers_(io_, *state_, {.rank_binary = options_.rank_binary, .devices = DeviceNames(host_)},
               [this](v1::WorkerExited exited, Clock::time_point observed) {
                 metrics_.Add(kWorkerExits, {ExitCause(exited)});
                 v1::AgentMessage fact;
                 *fact.mutable_worker_exited() = std::move(exited);
                 link_.Tell(std::move(fact), observed);
               }),
      checks_(io_,
              {.command = options_.check_command,
               .folder = state_->tasks(),
               .limit = options_.check_limit},
              [this](v1::TaskResult result) {
                v1::AgentMessage fact;
                *fact.mutable_task_result() = std::move(result);
                link_.Tell(std::move(fact), Clock::now());
              }),
      link_(io_, *stub_, options_.node, NewUlid(std::chrono::system_clock::now()),
            {.registration = [this] { return Registration(); },
             .on_message = [this](const v1::CoordinatorMessage& message) { OnMessage(message); },
             .on_connected =
                 [this](bool connected) {
                   metrics_.Set(kCoordinatorConnected, connected ? 1 : 0);
                   if (connected && std::exchange(reports_refused_, false)) workers_.AskAgain();
                 },
             .on_settled =
                 [this](const v1::AgentMessage& fact) {
                   if (fact.has_worker_exited()) workers_.ExitKnown(fact.worker_exited());
                 },
             .on_room =
                 [this] {
                   reports_refused_ = false;
                   workers_.AskAgain();
                 }}),
      service_(io_, workers_, *stub_,
               {.on_report = [this](v1::RankReport report) { OnReport(std::move(report)); },
                .on_store_call = [this] { metrics_.Add(kStoreCalls); }}) {}

absl::Status Agent::Listen() {
  auto http = http::Server::Start(
      io_, {.address = options_.http_address},
      {{"/metrics", [this](const http::Request&) { return ServeMetrics(); }},
       {"/healthz", [](const http::Request&) { return http::Response{.body = "ok\n"}; }}});
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  if (absl::Status adopted = workers_.AdoptRecorded(); !adopted.ok()) return adopted;
  auto server =
      rpc::Server::Start({.address = "unix:" + state_->socket().string(), .services = {&service_}});
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  spdlog::info("event=agent_started node={} coordinator={} devices={} state_dir={} http_port={}",
               options_.node, options_.coordinator, fmt::join(DeviceNames(host_), ","),
               options_.state_dir.string(), http_->port());
  loop_ = std::thread([this] { io_.run(); });
  asio::post(io_, [this] { link_.Start(); });
  return absl::OkStatus();
}

Agent::~Agent() {
  TUNDISH_CHECK(!loop_.joinable());
}

void Agent::RunToEnd(std::function<void(std::function<void()>)> step) {
  std::promise<void> ended;
  asio::post(io_, [&] { step([&ended] { ended.set_value(); }); });
  ended.get_future().wait();
}

void Agent::Stop(bool stop_ranks) {
  spdlog::info("event=agent_stopping node={} ranks={}", options_.node,
               stop_ranks ? "killed" : "kept");
  if (stop_ranks) {
    RunToEnd([this](std::function<void()> ended) {
      workers_.KillAll(std::chrono::seconds(10), std::move(ended));
    });
  }
  RunToEnd([this](std::function<void()> ended) {
    http_->Close();
    workers_.DetachAll();
    link_.Close(std::chrono::seconds(1), std::move(ended));
  });
  server_->Stop(std::chrono::milliseconds(200));  // The loop still runs and ends what is left.
  work_.reset();
  io_.stop();
  loop_.join();
}

v1::Register Agent::Registration() const {
  v1::Register registration;
  registration.set_version(TUNDISH_VERSION);
  registration.set_data_address(options_.data_address);
  registration.set_topology(host_.topology);
  for (const v1::Device& device : host_.devices) *registration.add_devices() = device;
  for (v1::LiveWorker& worker : workers_.Live()) {
    *registration.add_workers() = std::move(worker);
  }
  return registration;
}

void Agent::OnMessage(const v1::CoordinatorMessage& message) {
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kStartWorker: {
      const v1::StartWorker& order = message.start_worker();
      const absl::Status started = workers_.Start(order);
      if (started.ok()) return;
      spdlog::warn("event=start_failed worker={} job={} error=\"{}\"", order.worker_id(),
                   order.job_id(), std::string(started.message()));
      v1::AgentMessage fact;
      v1::StartFailed& failed = *fact.mutable_start_failed();
      failed.set_worker_id(order.worker_id());
      failed.set_job_id(order.job_id());
      failed.set_error(std::string(started.message()));
      return link_.Tell(std::move(fact), Clock::now());
    }
    case v1::CoordinatorMessage::kKillWorker:
      return workers_.Kill(message.kill_worker());
    case v1::CoordinatorMessage::kOrder:
      return workers_.Deliver(message.order());
    case v1::CoordinatorMessage::kAck:
      return workers_.Acknowledge(message.ack());
    case v1::CoordinatorMessage::kRunTask:
      return checks_.Run(message.run_task());
    case v1::CoordinatorMessage::kRegisterReply:  // The link's own.
    case v1::CoordinatorMessage::BODY_NOT_SET:    // Of a newer coordinator.
      return;
  }
}

void Agent::OnReport(v1::RankReport report) {
  const bool relayed = link_.Report(std::move(report));
  metrics_.Add(relayed ? kReportsRelayed : kReportsRefused);
  reports_refused_ = reports_refused_ || !relayed;
}

http::Response Agent::ServeMetrics() {
  const metrics::ProcessUsage usage = metrics::ReadProcessUsage();
  metrics_.Set(kWorkers, static_cast<double>(workers_.Live().size()));
  metrics_.Set(kSpares, static_cast<double>(workers_.spares()));
  metrics_.Set(kResidentBytes, static_cast<double>(usage.resident_bytes));
  metrics_.RaiseTo(kCpuSeconds, usage.cpu_seconds);
  return {.content_type = std::string(metrics::kTextContentType), .body = metrics_.Text()};
}

}  // namespace tundish::agent
