#pragma once

#include <bitset>
#include <optional>
#include <string_view>

#include <absl/status/statusor.h>

#include "server/scheduler/types.h"

namespace tundish::scheduler {

/// A cron expression of five fields, "MINUTE HOUR DAY MONTH WEEKDAY", in UTC: numbers, "*", lists
/// "1,15", ranges "1-5", steps "*/10" or "8-18/2"; months and weekdays also by name ("jan", "mon"),
/// Sunday is 0 or 7. As in POSIX crontab: if both day and weekday are restricted, either is enough.
class Cron {
 public:
  /// Errors: InvalidArgument naming the field, its text and what is right; also for one that never
  /// comes, such as "0 0 30 2 *".
  static absl::StatusOr<Cron> Parse(std::string_view expression);

  /// The first minute after `after`.
  Time Next(Time after) const;

 private:
  Cron() = default;
  std::optional<Time> Search(Time after) const;

  std::bitset<60> minutes_;
  std::bitset<24> hours_;
  std::bitset<32> days_;
  std::bitset<13> months_;
  std::bitset<7> weekdays_;
  bool any_day_ = false;
  bool any_weekday_ = false;
};

}  // namespace tundish::scheduler
