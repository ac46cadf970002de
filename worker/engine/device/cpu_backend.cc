#include "worker/engine/device/cpu_backend.h"

#include <cstdio>
#include <exception>
#include <string>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

// Debian's Gloo headers are older than the Gloo inside libtorch_cpu.so and lay classes out
// differently, so nothing of them may be used but pointers. This is the one out-of-line function
// needed here, declared as libtorch_cpu.so 2.11 exports it: it fails a connection and wakes
// everybody who waits for it. (closeConnections() does not wake one's own waiters.)
namespace gloo::transport::tcp {
class Pair {
 public:
  std::exception_ptr signalExceptionExternal(const std::string& message);
};
}  // namespace gloo::transport::tcp

namespace tundish::device {
namespace {

class AbortableGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  /// Known limit of libtorch 2.11's Gloo: a pair that is signalled while it connects, and then
  /// connects, ends the process (Pair::handleEvents finds an error on an open connection). Only an
  /// abort within milliseconds of forming can meet it, that is, a second death during a recovery;
  /// the rank is then replaced like any other. Leaving such pairs alone would be worse: a rank that
  /// connects to the dead would block until the collective's timeout.
  void AbortPairs() noexcept {
    for (const auto& context : contexts_) {
      for (int peer = 0; peer < getSize(); ++peer) {
        if (peer != getRank()) AbortPair(*context, peer);
      }
    }
  }

 private:
  static void AbortPair(gloo::Context& context, int peer) noexcept {
    try {
      // Asking for a pair that was never used makes it connect through the store. The store's
      // epoch is closed by then and throws: there is nothing to abort.
      auto& pair = context.getPair(peer);
      if (pair) {
        reinterpret_cast<gloo::transport::tcp::Pair*>(pair.get())
            ->signalExceptionExternal("the arrangement of ranks was stopped");
      }
    } catch (const std::exception& error) {
      spdlog::debug("event=abort_skipped peer={} error=\"{}\"", peer, error.what());
    }
  }
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<AbortableGloo> gloo,
                   const c10::intrusive_ptr<c10d::Store>& store)
      : gloo_(std::move(gloo)),
        group_(c10::make_intrusive<c10d::ProcessGroup>(store, gloo_->getRank(), gloo_->getSize())) {
    group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo_);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  }

  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const override { return group_; }
  void Abort() noexcept override { gloo_->AbortPairs(); }

 private:
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
  return std::make_unique<GlooCommunicator>(std::move(gloo), own_keys);
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
