#pragma once

#include <string_view>

namespace tundish::partitioner {

/// True if `a` comes before `b` when runs of digits compare as numbers: "cuda:2" before "cuda:10".
/// A strict total order on distinct strings.
bool NaturalLess(std::string_view a, std::string_view b);

}  // namespace tundish::partitioner
