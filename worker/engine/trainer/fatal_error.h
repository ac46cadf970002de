#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace tundish::trainer {

/// This rank cannot go on, and a replacement could not either. Becomes v1::RankFailed.
class FatalError : public std::runtime_error {
 public:
  /// `reason` is snake_case for machines; `message` names the value and what would be right.
  FatalError(std::string reason, const std::string& message)
      : std::runtime_error(message), reason_(std::move(reason)) {}

  const std::string& reason() const { return reason_; }

 private:
  std::string reason_;
};

}  // namespace tundish::trainer
