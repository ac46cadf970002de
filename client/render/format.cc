#include "client/render/format.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/core.h>

namespace tundish::client {
namespace {

std::tm LocalTime(const google::protobuf::Timestamp& time) {
  const std::time_t seconds = time.seconds();
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return parts;
}

}  // namespace

size_t Width(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

std::string Printable(std::string_view text) {
  std::string printable(text);
  for (size_t i = 0; i < printable.size(); ++i) {
    const auto byte = static_cast<unsigned char>(printable[i]);
    if (byte < 0x20 || byte == 0x7F) printable[i] = ' ';
    // U+0080 to U+009F, which terminals obey too, are C2 80 to C2 9F.
    if (byte == 0xC2 && i + 1 < printable.size() &&
        static_cast<unsigned char>(printable[i + 1]) < 0xA0) {
      printable[i] = printable[i + 1] = ' ';
    }
  }
  return printable;
}

std::string Duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "-";
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string Milliseconds(double milliseconds) {
  return fmt::format("{:.0f} ms", milliseconds);
}

std::string Percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "-";
}

std::string Bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string DateTime(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "-";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", LocalTime(time));
}

std::string ClockTime(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return std::string(8, ' ');
  return fmt::format("{:%H:%M:%S}", LocalTime(time));
}

double SecondsBetween(const google::protobuf::Timestamp& from,
                      const google::protobuf::Timestamp& to) {
  return static_cast<double>(to.seconds() - from.seconds()) + 1e-9 * (to.nanos() - from.nanos());
}

}  // namespace tundish::client
