#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/engine/device/backend.h"

namespace tundish::trainer {

/// Every member of a group tells a few numbers and hears all: index rank * numbers.size() + i. A
/// null group has one member. Members tell equally many. Throws when a peer is lost.
std::vector<int64_t> GatherNumbers(device::Communicator* group, at::Device device, int rank,
                                   int size, std::span<const int64_t> numbers);

/// `text` in `words` numbers, cut at what they hold, and back.
std::vector<int64_t> PackText(const std::string& text, size_t words);
std::string UnpackText(std::span<const int64_t> words);

}  // namespace tundish::trainer
