#pragma once

#include <memory>

#include "worker/engine/device/backend.h"

namespace tundish::device {

/// Plain CPUs, groups by Gloo over TCP. Connect() makes all connections of a group and can be
/// aborted at any time: a peer that dies while groups form blocks nobody. The process must have
/// called PrepareProcess.
class CpuBackend final : public Backend {
 public:
  at::Device device() const override { return at::Device(at::kCPU); }
  std::unique_ptr<Communicator> CreateGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                            const GroupOptions& options) override;
  MemoryStatistics Memory() const override;
  void Synchronize() override {}
};

}  // namespace tundish::device
