#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <google/protobuf/timestamp.pb.h>

namespace tundish::client {

/// Code points of UTF-8 `text`.
size_t Width(std::string_view text);

/// `text` without control characters (each becomes a blank), so that a log line or a class name
/// cannot drive the terminal.
std::string Printable(std::string_view text);

/// "0.4 s", "12 s", "3 min 05 s", "2 h 07 min"; "-" for a negative or non-finite number.
std::string Duration(double seconds);

/// "3 ms", "1240 ms".
std::string Milliseconds(double milliseconds);

/// "84.1 %" for 0.841; "-" if not finite.
std::string Percent(double share);

/// "12.3 MiB".
std::string Bytes(uint64_t bytes);

/// Local time: "2026-12-01 12:00:01" and "12:00:01"; "-" and "        " for the epoch itself.
std::string DateTime(const google::protobuf::Timestamp& time);
std::string ClockTime(const google::protobuf::Timestamp& time);

/// Seconds from `from` to `to`.
double SecondsBetween(const google::protobuf::Timestamp& from,
                      const google::protobuf::Timestamp& to);

}  // namespace tundish::client
