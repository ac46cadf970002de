#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <google/protobuf/message.h>

namespace tundish {

/// Largest accepted text, bytes.
inline constexpr size_t kMaxConfigBytes = 1 << 20;

/// Reads YAML (or JSON, which is a subset of it) into `message`. Keys are the proto field names.
///
/// - Numbers may be quoted (protobuf's JSON mapping quotes 64-bit ones); `bytes` are base 64; enum
///   values are their proto names in any case; a proto map is a mapping.
/// - A message or list with nothing behind its colon is present and empty; a scalar is an error.
/// - Anchors, aliases, tags and further documents are refused; nesting ends at 32 levels.
///
/// On success `message` holds exactly what the text says, on failure it is unchanged.
/// Errors: InvalidArgument, one line such as
/// `elpv.yaml:7: training.global_bach: unknown key, did you mean "global_batch"? Known keys: …`
/// (`source_name`, line, dotted key, value, what would be right). Thread-safe.
absl::Status MessageFromYaml(std::string_view text, google::protobuf::Message* message,
                             std::string_view source_name = "input");

/// The same for a file, or anything that can be read to its end.
/// Errors also: NotFound, PermissionDenied, FailedPrecondition (a folder, too large), each with the
/// path.
absl::Status MessageFromFile(const std::string& path, google::protobuf::Message* message);

}  // namespace tundish
