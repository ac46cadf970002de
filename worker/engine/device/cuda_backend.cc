// Built as tundish_backend_cuda.so, opened by device::OpenBackend on GPU hosts only.
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "worker/engine/device/backend.h"

namespace tundish::device {
namespace {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl,
                   const c10::intrusive_ptr<c10d::Store>& store)
      : nccl_(std::move(nccl)),
        group_(c10::make_intrusive<c10d::ProcessGroup>(store, nccl_->getRank(), nccl_->getSize())) {
    group_->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, nccl_);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
  }
  ~NcclCommunicator() override { Abort(); }

  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const override { return group_; }

  void Abort() noexcept override {
    try {
      nccl_->abort();
    } catch (const std::exception&) {
      // Aborted already, or never used: nothing is in flight either way.
    }
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(c10::DeviceIndex index) : index_(index) {
    const int count = c10::cuda::device_count();
    TORCH_CHECK(index >= 0 && index < count, "device cuda:", static_cast<int>(index),
                " does not exist, this host has ", count, " GPUs");
    c10::cuda::set_device(index);
  }

  at::Device device() const override { return at::Device(at::kCUDA, index_); }

  std::unique_ptr<Communicator> CreateGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupOptions& options) override {
    auto settings = c10d::ProcessGroupNCCL::Options::create();
    settings->timeout = options.timeout;
    const auto own_keys = c10::make_intrusive<c10d::PrefixStore>(options.name, store);
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(own_keys, options.rank, options.size,
                                                            std::move(settings));
    return std::make_unique<NcclCommunicator>(std::move(nccl), own_keys);
  }

  MemoryStatistics Memory() const override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index_);
    // Entry 0 sums over the pools.
    return {.used_bytes = static_cast<uint64_t>(stats.reserved_bytes[0].current)};
  }

  void Synchronize() override { c10::cuda::device_synchronize(); }

 private:
  c10::DeviceIndex index_;
};

}  // namespace
}  // namespace tundish::device

extern "C" tundish::device::Backend* TundishOpenBackend(const char* name) {
  const std::string text = name;
  const size_t colon = text.find(':');
  const int index = colon == std::string::npos ? 0 : std::atoi(text.c_str() + colon + 1);
  return new tundish::device::CudaBackend(static_cast<c10::DeviceIndex>(index));
}
