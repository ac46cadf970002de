#include "server/scheduler/cron.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tundish::scheduler {
namespace {

using std::chrono::days;
using std::chrono::floor;
using std::chrono::hours;
using std::chrono::minutes;

constexpr std::size_t kLongest = 256;
/// 29 February falls on a given weekday once in 28 years, 40 around a century without it.
constexpr int kYearsSearched = 41;

struct FieldKind {
  const char* name;
  int low;
  int high;
  /// Names of low, low + 1 …
  std::vector<std::string_view> names;
};

const std::array<FieldKind, 5>& Fields() {
  static const std::array<FieldKind, 5> fields = {
      {{"minute", 0, 59, {}},
       {"hour", 0, 23, {}},
       {"day", 1, 31, {}},
       {"month",
        1,
        12,
        {"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
       {"weekday", 0, 7, {"sun", "mon", "tue", "wed", "thu", "fri", "sat"}}}};
  return fields;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  for (const std::string_view word : Split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::optional<int> Number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

std::optional<int> Value(std::string_view text, const FieldKind& field) {
  for (std::size_t i = 0; i < field.names.size(); ++i) {
    if (std::ranges::equal(text, field.names[i], {},
                           [](unsigned char c) { return std::tolower(c); })) {
      return field.low + static_cast<int>(i);
    }
  }
  const std::optional<int> value = Number(text);
  return value && *value >= field.low && *value <= field.high ? value : std::nullopt;
}

/// One part of a list: "*", "5", "1-5", each with an optional "/step". False if it is none.
bool AddPart(std::string_view part, const FieldKind& field, std::vector<bool>& values) {
  const auto halves = Split(part, '/');
  int step = 1;
  if (halves.size() == 2) {
    const std::optional<int> given = Number(halves[1]);
    if (!given || *given < 1 || *given > field.high) return false;
    step = *given;
  }
  if (halves.size() > 2) return false;
  int low = field.low;
  int high = field.high;
  if (halves[0] != "*") {
    const auto ends = Split(halves[0], '-');
    const std::optional<int> first = Value(ends[0], field);
    const std::optional<int> last = ends.size() == 2 ? Value(ends[1], field) : first;
    if (!first || !last || ends.size() > 2 || *first > *last) return false;
    low = *first;
    high = halves.size() == 2 && ends.size() == 1 ? field.high : *last;
  }
  for (int value = low; value <= high; value += step) values[value] = true;
  return true;
}

}  // namespace

absl::StatusOr<Cron> Cron::Parse(std::string_view expression) {
  const auto words = Words(expression);
  if (expression.size() > kLongest || words.size() != Fields().size()) {
    return absl::InvalidArgumentError(
        fmt::format("cron '{:.80}' has {} fields: expected 5, MINUTE HOUR DAY MONTH WEEKDAY, e.g. "
                    "\"0 3 * * mon\" (Mondays at 03:00 UTC)",
                    expression, words.size()));
  }
  std::array<std::vector<bool>, 5> values;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const FieldKind& field = Fields()[i];
    values[i].assign(field.high + 1, false);
    for (const std::string_view part : Split(words[i], ',')) {
      if (AddPart(part, field, values[i])) continue;
      return absl::InvalidArgumentError(
          fmt::format("cron '{}': {} '{}': expected numbers of {} to {}, *, lists, ranges or steps",
                      expression, field.name, words[i], field.low, field.high));
    }
  }
  Cron cron;
  for (int i = 0; i < 60; ++i) cron.minutes_[i] = values[0][i];
  for (int i = 0; i < 24; ++i) cron.hours_[i] = values[1][i];
  for (int i = 1; i < 32; ++i) cron.days_[i] = values[2][i];
  for (int i = 1; i < 13; ++i) cron.months_[i] = values[3][i];
  for (int i = 0; i < 8; ++i) cron.weekdays_[i % 7] = cron.weekdays_[i % 7] || values[4][i];
  cron.any_day_ = words[2].starts_with('*');
  cron.any_weekday_ = words[4].starts_with('*');
  if (!cron.Search(Time{})) {
    return absl::InvalidArgumentError(
        fmt::format("cron '{}' never comes: no such day in that month", expression));
  }
  return cron;
}

Time Cron::Next(Time after) const {
  return Search(after).value_or(Time::max());
}

std::optional<Time> Cron::Search(Time after) const {
  const auto start = floor<minutes>(after) + minutes(1);
  auto day = floor<days>(start);
  for (int i = 0; i <= kYearsSearched * 366; ++i, day += days(1)) {
    const std::chrono::year_month_day date(day);
    if (!months_[static_cast<unsigned>(date.month())]) continue;
    const bool right_day = days_[static_cast<unsigned>(date.day())];
    const bool right_weekday = weekdays_[std::chrono::weekday(day).c_encoding()];
    const bool right =
        any_day_ || any_weekday_ ? right_day && right_weekday : right_day || right_weekday;
    if (!right) continue;
    for (int hour = 0; hour < 24; ++hour) {
      if (!hours_[hour]) continue;
      for (int minute = 0; minute < 60; ++minute) {
        const auto time = day + hours(hour) + minutes(minute);
        if (minutes_[minute] && time >= start) return Time(time);
      }
    }
  }
  return std::nullopt;
}

}  // namespace tundish::scheduler
