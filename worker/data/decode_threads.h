#pragma once

namespace tundish::data {

/// Processors this process may use: its affinity mask, and no more than its cgroup's CPU quota
/// allows. ≥ 1.
int UsableCores();

/// Threads for decoding on one rank: its share of the host's cores less those it computes with
/// (`compute_threads`: intra-op threads of a CPU rank, 1 for the thread that drives a GPU). In
/// [1, 32].
int DecodeThreads(int cores, int ranks_on_host, int compute_threads);

}  // namespace tundish::data
