#include "worker/engine/device/cpu_backend.h"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

// Debian's Gloo headers are older than the Gloo inside libtorch_cpu.so and lay classes out
// differently, so nothing of them may be used but pointers. These are the out-of-line functions
// needed here, declared as libtorch_cpu.so 2.11 exports them.
namespace gloo::transport::tcp {
class Pair {
 public:
  bool isConnected();
  /// Fails a connection and wakes everybody who waits for it. (closeConnections() does not wake
  /// one's own waiters.)
  std::exception_ptr signalExceptionExternal(const std::string& message);
};
}  // namespace gloo::transport::tcp

namespace tundish::device {
namespace {

/// Gloo ends the process when a connection that was failed from outside is then made after all, or
/// is failed again by the end of its device. So the connections are made here, before the first
/// collective can wait for one, and only made ones are ever failed.
class AbortableGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  void ConnectPairs(std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    // Starts them all; each waits in the store for its peer's address.
    const std::vector<Pair> pairs = Pairs();
    started_ = true;
    std::unique_lock lock(mutex_);
    for (const Pair& pair : pairs) {
      // Gloo tells nobody that it has connected; the pause is what a connection takes.
      while (!pair.at->isConnected()) {
        aborting_.wait_for(lock, std::chrono::microseconds(200), [this] { return aborted_; });
        TORCH_CHECK(!aborted_, "the arrangement of ranks was stopped");
        TORCH_CHECK(std::chrono::steady_clock::now() < deadline, "rank ", getRank(), " of ",
                    getSize(), " could not connect to rank ", pair.peer, " in ", timeout.count(),
                    " ms");
      }
    }
    TORCH_CHECK(!aborted_, "the arrangement of ranks was stopped");
  }

  void AbortPairs() noexcept {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
    }
    aborting_.notify_all();
    if (!started_) return;
    try {
      for (const Pair& pair : Pairs()) {
        if (pair.at->isConnected()) {
          pair.at->signalExceptionExternal("the arrangement of ranks was stopped");
        }
      }
    } catch (const std::exception& error) {
      spdlog::warn("event=abort_failed error=\"{}\"", error.what());
    }
  }

 private:
  struct Pair {
    int peer;
    gloo::transport::tcp::Pair* at;
  };

  /// All but the one with itself. Asking for a pair the first time makes it connect.
  std::vector<Pair> Pairs() {
    std::vector<Pair> pairs;
    for (const auto& context : contexts_) {
      for (int peer = 0; peer < getSize(); ++peer) {
        if (peer == getRank()) continue;
        pairs.push_back(
            {peer, reinterpret_cast<gloo::transport::tcp::Pair*>(context->getPair(peer).get())});
      }
    }
    return pairs;
  }

  std::atomic<bool> started_ = false;
  std::mutex mutex_;
  std::condition_variable aborting_;
  bool aborted_ = false;  // Guarded by mutex_.
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<AbortableGloo> gloo,
                   const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout)
      : timeout_(timeout),
        gloo_(std::move(gloo)),
        group_(c10::make_intrusive<c10d::ProcessGroup>(store, gloo_->getRank(), gloo_->getSize())) {
    group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo_);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  }

  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const override { return group_; }
  void Connect() override { gloo_->ConnectPairs(timeout_); }
  void Abort() noexcept override { gloo_->AbortPairs(); }

 private:
  const std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<AbortableGloo> gloo_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<Communicator> CpuBackend::CreateGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const GroupOptions& options) {
  auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
  // A device of its own per group: tearing one group down never touches the other's connections.
  settings->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname(options.bind_address, /*lazyInit=*/true));
  settings->threads = 1;
  const auto own_keys = c10::make_intrusive<c10d::PrefixStore>(options.name, store);
  auto gloo =
      c10::make_intrusive<AbortableGloo>(own_keys, options.rank, options.size, std::move(settings));
  return std::make_unique<GlooCommunicator>(std::move(gloo), own_keys, options.timeout);
}

MemoryStatistics CpuBackend::Memory() const {
  MemoryStatistics memory;
  // statm: sizes in pages; the second is the resident set (proc(5)).
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    unsigned long total = 0;
    unsigned long resident = 0;
    if (std::fscanf(file, "%lu %lu", &total, &resident) == 2) {
      memory.used_bytes = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    }
    std::fclose(file);
  }
  return memory;
}

}  // namespace tundish::device
