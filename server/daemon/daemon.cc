#include "server/daemon/daemon.h"

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/http/server.h"
#include "runtime/rpc/server.h"
#include "server/api/job_service.h"
#include "server/api/node_service.h"
#include "server/daemon/status_page.h"
#include "server/daemon/telemetry.h"
#include "server/jobs/core.h"
#include "server/store/store.h"

namespace tundish::daemon {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::milliseconds kStopGrace{2'000};

absl::StatusOr<std::string> MakeFolder(const std::string& path, bool is_private) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).lexically_normal();
  if (!error) std::filesystem::create_directories(folder, error);
  if (!error && is_private) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return absl::FailedPreconditionError(
        fmt::format("cannot use folder '{}': {}", path, error.message()));
  }
  return folder.string();
}

/// Removes `folder` below `root`; anything that would lead elsewhere is left alone.
void RemoveFolder(const std::filesystem::path& root, const std::string& folder) {
  const std::filesystem::path relative = std::filesystem::path(folder).lexically_normal();
  if (relative.empty() || relative.is_absolute() || *relative.begin() == ".." ||
      *relative.begin() == ".") {
    spdlog::error("event=folder_not_removed folder=\"{}\" reason=not_below_artifact_root", folder);
    return;
  }
  std::error_code error;
  std::filesystem::remove_all(root / relative, error);
  if (error) {
    spdlog::warn("event=folder_not_removed folder=\"{}\" reason=\"{}\"", folder, error.message());
  }
}

/// Removes every entry of the folder that is not to be kept.
void SweepFolder(const std::filesystem::path& root, const jobs::Sweep& sweep) {
  const std::filesystem::path folder = std::filesystem::path(sweep.folder).lexically_normal();
  std::error_code error;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator entry(root / folder, error), end; !error && entry != end;
       entry.increment(error)) {
    found.push_back(entry->path().filename().string());
  }
  for (const std::string& name : found) {
    if (std::ranges::find(sweep.keep, name) != sweep.keep.end()) continue;
    RemoveFolder(root, (folder / name).string());
  }
}

/// What a process without privileges may still write there.
uint64_t FreeBytes(const std::string& folder) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  return error ? UINT64_MAX : space.available;
}

/// Copies for backups whose maker was killed.
void RemoveLeftBackups(const std::filesystem::path& state_dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(state_dir, error)) {
    if (entry.path().filename().string().starts_with("backup-")) {
      std::filesystem::remove(entry.path(), error);
    }
  }
}

/// The parts of a running coordinator, in the order they start; they stop in reverse.
class Coordinator {
 public:
  Coordinator(const Options& options, std::string artifact_root,
              std::unique_ptr<store::Store> store)
      : options_(options), store_(std::move(store)), tick_(loop_), signals_(loop_) {
    jobs::Settings settings = options.settings;
    settings.artifact_root = artifact_root;
    core_ = std::make_unique<jobs::Core>(jobs::Core::Parts{
        .loop = loop_.get_executor(),
        .store = *store_,
        .settings = settings,
        .clock =
            [] {
              return jobs::Now{std::chrono::system_clock::now(), std::chrono::steady_clock::now()};
            },
        .remove_folder =
            [this, artifact_root](std::string folder) {
              asio::post(disk_, [artifact_root, folder = std::move(folder)] {
                RemoveFolder(artifact_root, folder);
              });
            },
        .sweep_folder =
            [this, artifact_root](jobs::Sweep sweep) {
              asio::post(disk_, [artifact_root, sweep = std::move(sweep)] {
                SweepFolder(artifact_root, sweep);
              });
            },
        .observer = &telemetry_,
        .free_bytes = [folder = options.state_dir] { return FreeBytes(folder); }});
    jobs_ = std::make_unique<api::JobService>(loop_.get_executor(), *core_, artifact_root);
    nodes_ = std::make_unique<api::NodeService>(loop_.get_executor(), *core_);
    cluster_ = std::make_unique<api::ClusterService>(loop_.get_executor(), *core_, *store_,
                                                     options.state_dir);
  }

  absl::Status Start() {
    if (absl::Status loaded = core_->Load(); !loaded.ok()) return loaded;
    auto http = http::Server::Start(loop_, {.address = options_.http}, Pages());
    if (!http.ok()) return http.status();
    http_ = *std::move(http);
    // Last: a call that has come in needs the loop to end.
    auto server = rpc::Server::Start(
        {.address = options_.listen, .services = {jobs_.get(), nodes_.get(), cluster_.get()}});
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    Tick();
    signals_.add(SIGTERM);
    signals_.add(SIGINT);
    signals_.async_wait([this](boost::system::error_code error, int signal) {
      if (!error) Stop(signal);
    });
    spdlog::info("event=listening grpc={} http={} state_dir={}", options_.listen, options_.http,
                 options_.state_dir);
    return absl::OkStatus();
  }

  void Run() {
    loop_.run();
    if (stopper_.joinable()) stopper_.join();
  }

  ~Coordinator() {
    http_.reset();
    core_->Close();
    server_.reset();
    jobs_.reset();
    cluster_.reset();
    disk_.join();
    core_.reset();
    store_->Close();
  }

 private:
  void Tick() {
    core_->Tick();
    tick_.expires_after(kTick);
    tick_.async_wait([this](boost::system::error_code error) {
      if (!error) Tick();
    });
  }

  std::map<std::string, http::Handler> Pages() {
    return {
        {"/metrics",
         [this](const http::Request&) {
           return http::Response{200, std::string(metrics::kTextContentType), telemetry_.Text()};
         }},
        {"/healthz", [](const http::Request&) { return http::Response{.body = "ok\n"}; }},
        {"/readyz",
         [this](const http::Request&) {
           const absl::Status& health = core_->committer().health();
           if (health.ok()) return http::Response{.body = "ready\n"};
           return http::Response{.status = 503, .body = health.ToString() + "\n"};
         }},
        {"/",
         [this](const http::Request&) {
           v1::ListJobsRequest all;
           const auto jobs = core_->ListJobs(all);
           return http::Response{200, "text/html; charset=utf-8",
                                 StatusPage(*jobs, core_->ListNodes())};
         }},
    };
  }

  /// Calls in progress end through the loop, so waiting for them takes a thread of its own.
  void Stop(int signal) {
    spdlog::info("event=stopping signal={}", signal);
    tick_.cancel();
    http_->Close();
    server_->SetNotServing();
    core_->Close();
    stopper_ = std::thread([this] {
      server_->Stop(kStopGrace);
      loop_.stop();
    });
  }

  const Options& options_;
  asio::io_context loop_{1};
  asio::thread_pool disk_{1};
  Telemetry telemetry_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<jobs::Core> core_;
  std::unique_ptr<api::JobService> jobs_;
  std::unique_ptr<api::NodeService> nodes_;
  std::unique_ptr<api::ClusterService> cluster_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<http::Server> http_;
  asio::steady_timer tick_;
  asio::signal_set signals_;
  std::thread stopper_;
};

}  // namespace

absl::Status Run(const Options& options) {
  for (const auto& [flag, address] :
       {std::pair("--listen", options.listen), std::pair("--http", options.http)}) {
    if (absl::Status exposed = CheckExposure(flag, address, options.insecure); !exposed.ok()) {
      return exposed;
    }
  }
  const auto state_dir = MakeFolder(options.state_dir, true);
  if (!state_dir.ok()) return state_dir.status();
  const auto artifact_root = MakeFolder(
      options.artifact_root.empty() ? *state_dir + "/artifacts" : options.artifact_root, false);
  if (!artifact_root.ok()) return artifact_root.status();
  auto store = store::Store::Open(std::filesystem::path(*state_dir) / "tundish.db");
  if (!store.ok()) return store.status();
  RemoveLeftBackups(*state_dir);  // the store's lock says that nobody is making one
  Coordinator coordinator(options, *artifact_root, *std::move(store));
  if (absl::Status started = coordinator.Start(); !started.ok()) return started;
  coordinator.Run();
  spdlog::info("event=stopped");
  return absl::OkStatus();
}

}  // namespace tundish::daemon
