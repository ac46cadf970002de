#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "tundish/v1/job.pb.h"

namespace tundish::client {

/// One metric point as a line without an end: "data epoch 2  step 120/660  loss 0.4312  …".
std::string MetricLine(const v1::MetricPoint& metric);

/// Any other update as a line without an end; empty if it is not worth one.
std::string UpdateLine(const v1::JobUpdate& update);

/// Shows a job's stream to a person. On a terminal metric points overwrite one line; elsewhere a
/// plain line appears at most once a second, and the last point before an event always does. Log
/// lines below a warning are left out.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `write` takes text as it is to appear. `columns`: width of the terminal, 0 if it is none.
  Progress(int columns, std::function<void(const std::string&)> write);

  void Show(const v1::JobUpdate& update, Clock::time_point now);

  /// Puts a line of its own between the others.
  void ShowLine(const std::string& line);

  /// Ends the updating line or writes the point held back. Call at the end.
  void Finish();

 private:
  void ShowMetric(const v1::MetricPoint& metric, Clock::time_point now);

  const int columns_;
  const std::function<void(const std::string&)> write_;
  bool line_open_ = false;
  std::optional<v1::MetricPoint> held_back_;
  std::optional<Clock::time_point> last_line_;
};

}  // namespace tundish::client
