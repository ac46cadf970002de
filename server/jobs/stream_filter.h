#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include <absl/status/status.h>

#include "tundish/v1/job.pb.h"
#include "tundish/v1/job_service.pb.h"

namespace tundish::jobs {

/// What one reader wants of a stream. Remembers the last metric point it let through.
class StreamFilter {
 public:
  /// InvalidArgument naming the field, its value and the limit.
  static absl::Status Check(const v1::WatchJobRequest& request);
  static absl::Status Check(const v1::WatchAllRequest& request);

  StreamFilter() = default;
  /// `tensor` is the job's degree: a rank is dp * tensor + tp.
  StreamFilter(const v1::WatchJobRequest& request, int tensor);
  explicit StreamFilter(const v1::WatchAllRequest& request);

  /// False: the reader does not want the update. Else `*shaped` is set if it wants another form of
  /// it (a metric point with fewer ranks). `dropped` updates always pass.
  bool Pass(const v1::JobUpdate& update, std::optional<v1::JobUpdate>* shaped);

 private:
  bool PassMetric(const v1::JobUpdate& update, std::optional<v1::JobUpdate>* shaped);
  bool Wanted(int dp, int tp) const;

  bool events_ = true;
  bool metrics_ = true;
  bool logs_ = true;
  std::set<std::uint32_t> ranks_;
  int tensor_ = 1;
  std::int64_t interval_ms_ = 0;
  std::optional<std::int64_t> last_metric_ms_;
};

}  // namespace tundish::jobs
