#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "tundish/v1/job.pb.h"

namespace tundish::spec {

/// Collects what is wrong with a spec, one entry per field and in the order of the checks.
class FieldChecks {
 public:
  /// Adds an entry unless `good`. `expected` says what would be right.
  void Require(bool good, std::string_view field, std::string_view value,
               std::string_view expected);

  /// Requires low <= value <= high; NaN is never in range.
  template <class Number>
  void Range(std::string_view field, Number value, Number low, Number high) {
    Require(value >= low && value <= high, field, fmt::format("{}", value),
            fmt::format("{} to {}", low, high));
  }

  /// Requires `value` to be a known, named constant of the enum `Enum`.
  template <class Enum>
  void Known(std::string_view field, Enum value) {
    const auto* descriptor = google::protobuf::GetEnumDescriptor<Enum>();
    const bool good = value != 0 && descriptor->FindValueByNumber(value) != nullptr;
    if (good) return;
    std::string names;
    for (int i = 1; i < descriptor->value_count(); ++i) {
      if (!names.empty()) names += i + 1 == descriptor->value_count() ? " or " : ", ";
      names += descriptor->value(i)->name();
    }
    Require(false, field, std::to_string(static_cast<int>(value)), names);
  }

  /// 1 to 63 of [a-z0-9-], starting with a letter.
  void Label(std::string_view field, std::string_view value);

  /// An absolute path of at most 4096 bytes without control characters.
  void AbsolutePath(std::string_view field, std::string_view value);

  std::vector<v1::InvalidField> Take() && { return std::move(invalid_); }

 private:
  std::vector<v1::InvalidField> invalid_;
};

/// `text` cut to at most 80 bytes at a character's start, control characters replaced by '?': fit
/// for a message.
std::string Printable(std::string_view text);

}  // namespace tundish::spec
