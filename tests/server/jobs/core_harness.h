#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "runtime/base/ulid.h"
#include "server/jobs/core.h"
#include "server/spec/resolve.h"
#include "server/store/store.h"
#include "tests/fakes/fake_agent.h"

namespace tundish::jobs {

/// Collects what a reader gets.
class TestSink : public UpdateSink {
 public:
  void Send(v1::WatchJobResponse message) override {
    for (const v1::JobUpdate& update : message.updates()) updates.push_back(update);
    ++messages;
  }
  void End(const absl::Status& status) override { ended = status; }
  size_t queued_bytes() const override { return queued; }

  /// Every seq up to the end is there once or in a dropped range; fails the test otherwise.
  uint32_t ExpectNoGap(uint32_t after = 0) const {
    uint32_t next = after + 1;
    for (const v1::JobUpdate& update : updates) {
      if (update.has_dropped()) {
        EXPECT_EQ(update.dropped().first(), next) << update.ShortDebugString();
        next = update.dropped().last() + 1;
      } else {
        EXPECT_EQ(update.seq(), next) << update.ShortDebugString();
        next = update.seq() + 1;
      }
    }
    return next - 1;
  }

  std::vector<v1::JobUpdate> updates;
  int messages = 0;
  size_t queued = 0;
  std::optional<absl::Status> ended;
};

/// A core with its real store in a folder of its own, a clock the test moves, and fake agents.
class CoreHarness : public testing::Test {
 protected:
  CoreHarness() : work_(loop_.get_executor()) {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("core_" + NewUlid(std::chrono::system_clock::now()));
    std::filesystem::create_directories(folder_);
    StartCore();
  }
  ~CoreHarness() override {
    for (auto& [name, agent] : agents_) agent->Forget();
    core_->Close();
    loop_.poll();
    core_.reset();
    store_->Close();
    std::filesystem::remove_all(folder_);
  }

  void StartCore() {
    auto store = store::Store::Open(folder_ / "tundish.db", store_options_);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    settings_.artifact_root = (folder_ / "artifacts").string();
    core_ = std::make_unique<Core>(
        Core::Parts{.loop = loop_.get_executor(),
                    .store = *store_,
                    .settings = settings_,
                    .clock = [this] { return now_; },
                    .remove_folder = [this](std::string folder) { removed_.push_back(folder); },
                    .sweep_folder = [this](Sweep sweep) { sweeps_.push_back(sweep); },
                    .observer = nullptr,
                    .free_bytes = [this] { return free_bytes_; }});
    const absl::Status loaded = core_->Load();
    ASSERT_TRUE(loaded.ok()) << loaded;
  }

  /// As kill -9 and a start: what is durable stays; agents have to connect again.
  void RestartCore() {
    for (auto& [name, agent] : agents_) agent->Forget();
    core_->Close();
    loop_.poll();
    core_.reset();
    store_->Close();
    StartCore();
  }

  fakes::FakeAgent& AddAgent(const std::string& name, int devices) {
    auto& agent = agents_[name] = std::make_unique<fakes::FakeAgent>(name, devices);
    agent->Connect(*core_);
    return *agent;
  }

  /// Runs until everything is durable and every order has been handled.
  void Settle() {
    bool busy = true;
    while (busy) {
      bool done = false;
      boost::asio::co_spawn(loop_, core_->Settled(),
                            [&done](std::exception_ptr, absl::Status) { done = true; });
      while (!done) loop_.run_one();
      loop_.poll();
      busy = false;
      for (auto& [name, agent] : agents_) busy = agent->Process() || busy;
    }
  }

  /// Runs until `condition` holds, e.g. until the store's reader thread has answered.
  template <class Condition>
  void RunUntil(Condition condition) {
    while (!condition()) loop_.run_one();
  }

  void Advance(std::chrono::milliseconds by) {
    now_.steady += by;
    now_.wall += by;
    for (auto& [name, agent] : agents_) agent->Heartbeat();
    core_->Tick();
    Settle();
  }

  static v1::JobSpec Spec(int tensor, int data, int steps = 10) {
    v1::JobSpec spec;
    spec.set_name("weekly");
    spec.mutable_data()->set_folder("/images");
    spec.mutable_model()->set_preset("vit_cell");
    spec.mutable_parallel()->set_tensor(tensor);
    spec.mutable_parallel()->set_data(data);
    spec.mutable_training()->set_steps(steps);
    spec.mutable_training()->set_global_batch(16);
    const auto resolved = spec::ResolveSpec(spec);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
    return resolved.value_or(spec);
  }

  std::string Submit(const v1::JobSpec& spec, const std::string& request_id = "r1") {
    const auto submitted = core_->Submit(request_id, spec);
    EXPECT_TRUE(submitted.ok()) << submitted.status();
    return submitted.ok() ? submitted->job_id() : "";
  }

  v1::Job Get(const std::string& id) { return core_->GetJob(id).value_or(v1::Job()); }

  /// Everything durable of the job's stream.
  std::vector<v1::JobUpdate> Stored(const std::string& id) {
    return store_->ReadUpdates(id, 0, 100000).value_or(std::vector<v1::JobUpdate>());
  }

  /// Published steps, in order.
  std::vector<uint32_t> Points(const std::string& id) {
    std::vector<uint32_t> steps;
    for (const auto& update : Stored(id)) {
      if (update.has_metric()) steps.push_back(update.metric().step());
    }
    return steps;
  }

  std::vector<std::string> Events(const std::string& id) {
    std::vector<std::string> types;
    for (const auto& update : Stored(id)) {
      if (!update.has_event()) continue;
      const v1::JobEvent& event = update.event();
      types.push_back(event.type() == "state_changed" ? v1::JobState_Name(event.state())
                                                      : event.type());
    }
    return types;
  }

  boost::asio::io_context loop_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::filesystem::path folder_;
  Settings settings_;
  store::Options store_options_;
  uint64_t free_bytes_ = uint64_t{1} << 40;
  Now now_{std::chrono::system_clock::now(), std::chrono::steady_clock::now()};
  std::unique_ptr<store::Store> store_;
  std::map<std::string, std::unique_ptr<fakes::FakeAgent>> agents_;
  std::vector<std::string> removed_;
  std::vector<Sweep> sweeps_;
  std::unique_ptr<Core> core_;
};

}  // namespace tundish::jobs
