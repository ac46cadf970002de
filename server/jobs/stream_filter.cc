#include "server/jobs/stream_filter.h"

#include <fmt/format.h>
#include <google/protobuf/util/time_util.h>

namespace tundish::jobs {
namespace {

absl::Status CheckInterval(std::uint32_t milliseconds) {
  constexpr std::uint32_t kDay = 86'400'000;
  if (milliseconds <= kDay) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("minimum_interval_ms is {}; it must be 0 to {} (one day)", milliseconds, kDay));
}

}  // namespace

absl::Status StreamFilter::Check(const v1::WatchJobRequest& request) {
  constexpr int kMostRanks = 4096;
  if (request.ranks_size() > kMostRanks) {
    return absl::InvalidArgumentError(
        fmt::format("ranks has {} entries; the most is {}", request.ranks_size(), kMostRanks));
  }
  return CheckInterval(request.minimum_interval_ms());
}

absl::Status StreamFilter::Check(const v1::WatchAllRequest& request) {
  constexpr int kMostCursors = 100'000;
  if (request.after_size() > kMostCursors) {
    return absl::InvalidArgumentError(
        fmt::format("after has {} entries; the most is {}", request.after_size(), kMostCursors));
  }
  return CheckInterval(request.minimum_interval_ms());
}

StreamFilter::StreamFilter(const v1::WatchJobRequest& request, int tensor)
    : events_(!request.without_events()),
      metrics_(!request.without_metrics()),
      logs_(!request.without_logs()),
      ranks_(request.ranks().begin(), request.ranks().end()),
      tensor_(tensor),
      interval_ms_(request.minimum_interval_ms()) {}

StreamFilter::StreamFilter(const v1::WatchAllRequest& request)
    : events_(!request.without_events()),
      metrics_(!request.without_metrics()),
      logs_(!request.without_logs()),
      interval_ms_(request.minimum_interval_ms()) {}

bool StreamFilter::Wanted(int dp, int tp) const {
  return ranks_.empty() || dp < 0 || ranks_.contains(static_cast<std::uint32_t>(dp * tensor_ + tp));
}

bool StreamFilter::Pass(const v1::JobUpdate& update, std::optional<v1::JobUpdate>* shaped) {
  switch (update.body_case()) {
    case v1::JobUpdate::kEvent:
      return events_;
    case v1::JobUpdate::kMetric:
      return metrics_ && PassMetric(update, shaped);
    case v1::JobUpdate::kLog:
      return logs_ && Wanted(update.log().dp(), update.log().tp());
    default:
      return true;
  }
}

bool StreamFilter::PassMetric(const v1::JobUpdate& update, std::optional<v1::JobUpdate>* shaped) {
  const std::int64_t now = google::protobuf::util::TimeUtil::TimestampToMilliseconds(update.time());
  // A clock that was set back must not silence the stream.
  if (interval_ms_ > 0 && last_metric_ms_ && now >= *last_metric_ms_ &&
      now - *last_metric_ms_ < interval_ms_) {
    return false;
  }
  last_metric_ms_ = now;
  if (ranks_.empty()) return true;
  v1::JobUpdate& copy = shaped->emplace(update);
  auto& ranks = *copy.mutable_metric()->mutable_ranks();
  for (int i = ranks.size() - 1; i >= 0; --i) {
    if (!Wanted(ranks[i].dp(), ranks[i].tp())) ranks.DeleteSubrange(i, 1);
  }
  return true;
}

}  // namespace tundish::jobs
