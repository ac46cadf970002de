#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "worker/data/dataset.h"

namespace tundish::data {

/// One image as its source names it, before labels are numbered and the split is decided.
struct Entry {
  std::string name;
  std::string file;
  std::string label;
  std::string group;
  std::optional<Split> split;
  float weight = 1.0F;
  /// Line of the manifest, from 1; 0 for folders.
  uint32_t line = 0;
};

struct Listing {
  std::vector<Entry> entries;
  /// Class folders, also those without an image; empty for manifests.
  std::vector<std::string> class_folders;
  std::vector<std::string> warnings;
};

inline constexpr size_t kMaxSamples = size_t{1} << 24;
inline constexpr size_t kMaxManifestBytes = size_t{1} << 28;
inline constexpr size_t kMaxPathBytes = 4096;
inline constexpr size_t kMaxNameBytes = 256;

/// Lists folder/<class>/…/<image>, or folder/{train,val}/<class>/…/<image>. Hidden files are passed
/// over, other files beside the class folders are, with a warning. Folders inside a class folder
/// belong to the class; links to folders there are not followed. Errors as Dataset::Scan.
absl::StatusOr<Listing> ListFolder(const std::string& folder);

/// Reads a .csv or .jsonl manifest (told by the name). Errors as Dataset::Scan.
absl::StatusOr<Listing> ListManifest(const std::string& manifest);

/// Parses the text of a manifest; `what` names it in errors, `base` is put before relative paths.
/// CSV: RFC 4180 with a header row; LF or CRLF; a byte order mark is passed over.
absl::StatusOr<Listing> ParseCsvManifest(std::string_view text, const std::string& what,
                                         const std::string& base);
/// One JSON object per line; empty lines are passed over.
absl::StatusOr<Listing> ParseJsonlManifest(std::string_view text, const std::string& what,
                                           const std::string& base);

/// True for well-formed UTF-8 without NUL.
bool IsPlainUtf8(std::string_view text);

}  // namespace tundish::data
