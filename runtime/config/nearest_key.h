#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tundish {

/// Edits that turn `a` into `b`: insert, delete or replace a character, swap two neighbours, each
/// counted once (optimal string alignment distance). Case does not count.
int EditDistance(std::string_view a, std::string_view b);

/// The entry of `known` with the smallest EditDistance to `key`, the first of equals; empty if
/// `known` is.
std::string NearestKey(std::string_view key, const std::vector<std::string>& known);

}  // namespace tundish
