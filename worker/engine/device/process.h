#pragma once

namespace tundish::device {

/// Settings of the whole process that groups of ranks need; call in main, before any other thread:
///   * SIGPIPE is ignored: Gloo writes with plain writev(2), and a peer that died between two of
///   its
///     writes would otherwise end this process instead of failing the collective;
///   * c10d's flight recorder is off. It reads its table of groups without a lock when two threads
///     start collectives (libtorch 2.11), keeps 2,000 records nobody asks for, and costs time in
///     every collective. TORCH_FR_BUFFER_SIZE set from outside wins.
void PrepareProcess();

}  // namespace tundish::device
