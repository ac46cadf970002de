#pragma once

#include <cstdint>

#include "worker/engine/device/backend.h"
#include "worker/engine/trainer/shard.h"

namespace tundish::trainer {

/// 64-bit hash of `bytes` of memory, for telling a damaged copy from a good one; no protection
/// against intent. Pure.
uint64_t HashBytes(const void* data, size_t bytes);

/// Sends the shard's whole state (weights, moments, counters, the sums it last committed with) to
/// rank `to` of the column.
void SendState(Shard& shard, device::Communicator& column, int to);

/// Receives what SendState sends into staging, and takes it over only when it is whole and its hash
/// matches: a death in the middle leaves the shard as it was, without state. Throws c10::Error for
/// a copy that does not fit or does not match.
void ReceiveState(Shard& shard, device::Communicator& column, int from);

}  // namespace tundish::trainer
