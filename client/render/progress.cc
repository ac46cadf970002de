#include "client/render/progress.h"

#include <fmt/core.h>

#include "client/render/format.h"
#include "client/render/job_text.h"

namespace tundish::client {
namespace {

std::string EventLine(const v1::JobEvent& event) {
  if (event.has_evaluation()) return "evaluated " + EvaluationLine(event.evaluation());
  if (event.has_incident())
    return fmt::format("{} {}", event.type(), IncidentLine(event.incident()));
  if (event.has_artifact()) {
    return fmt::format("{} {} ({})", event.artifact().kind(), Printable(event.artifact().path()),
                       Bytes(event.artifact().bytes()));
  }
  std::string line =
      event.type() == "state_changed" ? v1::JobState_Name(event.state()) : Printable(event.type());
  if (!event.reason().empty()) line += " " + Printable(event.reason());
  if (!event.message().empty()) line += ": " + Printable(event.message());
  return line;
}

std::string LogText(const v1::LogLine& log) {
  return log.dp() < 0 ? fmt::format("{} {}", Printable(log.level()), Printable(log.text()))
                      : fmt::format("{} [dp {} tp {}] {}", Printable(log.level()), log.dp(),
                                    log.tp(), Printable(log.text()));
}

/// The first `columns` code points.
std::string Cut(const std::string& text, int columns) {
  int seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) != 0x80 && seen++ == columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

std::string MetricLine(const v1::MetricPoint& metric) {
  return fmt::format("data epoch {}  step {}/{}  loss {:.4f}  lr {:.2e}  {:.1f} images/s  ETA {}",
                     metric.data_epoch(), metric.step() + 1, metric.total_steps(), metric.loss(),
                     metric.learning_rate(), metric.images_per_second(),
                     Duration(metric.eta_seconds()));
}

std::string UpdateLine(const v1::JobUpdate& update) {
  const std::string time = ClockTime(update.time()) + "  ";
  switch (update.body_case()) {
    case v1::JobUpdate::kEvent:
      return time + EventLine(update.event());
    case v1::JobUpdate::kMetric:
      return time + MetricLine(update.metric());
    case v1::JobUpdate::kLog:
      return time + LogText(update.log());
    case v1::JobUpdate::kDropped:
      if (update.dropped().reason() == "filter") return "";
      return time + fmt::format("updates {} to {} were not delivered: {}", update.dropped().first(),
                                update.dropped().last(), Printable(update.dropped().reason()));
    case v1::JobUpdate::BODY_NOT_SET:
      return "";
  }
  return "";
}

Progress::Progress(int columns, std::function<void(const std::string&)> write)
    : columns_(columns), write_(std::move(write)) {}

void Progress::Show(const v1::JobUpdate& update, Clock::time_point now) {
  if (update.has_metric()) return ShowMetric(update.metric(), now);
  // What ranks say in passing is for `tundish logs`.
  if (update.has_log() && (update.log().level() == "info" || update.log().level() == "debug")) {
    return;
  }
  const std::string line = UpdateLine(update);
  if (!line.empty()) ShowLine(line);
}

void Progress::ShowMetric(const v1::MetricPoint& metric, Clock::time_point now) {
  if (columns_ > 0) {
    // The last column stays free: writing into it may wrap.
    write_("\r\x1b[K" + Cut(MetricLine(metric), columns_ - 1));
    line_open_ = true;
    return;
  }
  if (last_line_ && now - *last_line_ < std::chrono::seconds(1)) {
    held_back_ = metric;
    return;
  }
  last_line_ = now;
  held_back_.reset();
  write_(MetricLine(metric) + "\n");
}

void Progress::ShowLine(const std::string& line) {
  Finish();
  write_(line + "\n");
}

void Progress::Finish() {
  if (held_back_) write_(MetricLine(*held_back_) + "\n");
  held_back_.reset();
  if (line_open_) write_("\n");
  line_open_ = false;
}

}  // namespace tundish::client
