#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace tundish {

/// A parsed document as written: order, duplicate keys, lines and quotes are kept.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  /// From 1.
  int line = 1;
  /// kScalar.
  std::string text;
  bool quoted = false;
  /// kSequence: the items. kMap: the values, in step with `keys`.
  std::vector<YamlNode> items;
  /// kMap; all scalars.
  std::vector<YamlNode> keys;
};

/// Levels of nesting a document may have.
inline constexpr int kMaxYamlDepth = 32;

/// Parses one document. Time and memory are linear in the text.
/// Errors: InvalidArgument `source_name:line: …` for bad syntax or UTF-8, anchors, aliases, tags, a
/// key that is no scalar, a second document, too deep nesting.
absl::StatusOr<YamlNode> ParseYamlTree(std::string_view text, std::string_view source_name);

}  // namespace tundish
