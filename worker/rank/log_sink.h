#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include <spdlog/sinks/base_sink.h>

namespace tundish::rank {

/// Hands log lines of level info and above on as (level, text), cut at 4 KiB. `take` is called
/// under the sink's lock and must not log.
class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  using Take = std::function<void(const std::string& level, std::string text)>;

  explicit LogSink(Take take) : take_(std::move(take)) { set_level(spdlog::level::info); }

  /// Waits for a `take` in progress; there is none afterwards. A logger's list of sinks must not
  /// change while other threads log, so the sink stays in it.
  void Detach() {
    const std::lock_guard lock(mutex_);
    take_ = nullptr;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (!take_) return;
    constexpr size_t kMostBytes = 4096;
    const std::string text(message.payload.data(), std::min(message.payload.size(), kMostBytes));
    const auto level = spdlog::level::to_string_view(message.level);
    take_(std::string(level.data(), level.size()), text);
  }
  void flush_() override {}

 private:
  Take take_;  // Guarded by mutex_.
};

}  // namespace tundish::rank
