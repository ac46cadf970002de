#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

#include <absl/status/status.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include "worker/data/decode.h"
#include "worker/data/source.h"

namespace tundish::data {
namespace {

namespace fs = std::filesystem;

/// Sums of a batch's weights and weighted losses keep their digits in fp32.
constexpr float kLeastWeight = 1e-6F;
constexpr float kMostWeight = 1e6F;

constexpr std::array<std::string_view, 5> kColumns = {"path", "label", "split", "group", "weight"};
constexpr size_t kMaxColumns = 1000;

std::string Clip(std::string_view text) {
  return text.size() <= 80 ? std::string(text) : std::string(text.substr(0, 80)) + "…";
}

absl::Status RowError(const std::string& what, uint32_t line, const std::string& problem) {
  return absl::InvalidArgumentError(fmt::format("manifest '{}' line {}: {}", what, line, problem));
}

/// Cells of one row, in the order of kColumns.
using Row = std::array<std::string, kColumns.size()>;

/// Turns rows into entries; the same rules for both formats.
class EntryReader {
 public:
  EntryReader(const std::string& what, const std::string& base, Listing& listing)
      : what_(what), base_(base), listing_(listing) {}

  absl::Status Add(Row&& row, uint32_t line) {
    auto& [path, label, split, group, weight] = row;
    if (listing_.entries.size() == kMaxSamples) {
      return RowError(what_, line, fmt::format("more than {} rows", kMaxSamples));
    }
    Entry entry = {.line = line};
    if (path.empty()) return RowError(what_, line, "'path' is empty; expected a file's path");
    if (label.empty()) return RowError(what_, line, "'label' is empty; expected a class name");
    if (path.size() > kMaxPathBytes || label.size() > kMaxNameBytes ||
        group.size() > kMaxPathBytes) {
      return RowError(what_, line,
                      fmt::format("a cell is too long; at most {} bytes for a path or "
                                  "group and {} for a label",
                                  kMaxPathBytes, kMaxNameBytes));
    }
    for (const std::string& cell : row) {
      if (!IsPlainUtf8(cell)) return RowError(what_, line, "is not valid UTF-8");
    }
    if (split == "train") entry.split = Split::kTrain;
    if (split == "val") entry.split = Split::kValidation;
    if (!split.empty() && !entry.split) {
      return RowError(what_, line,
                      fmt::format("split '{}' is neither 'train' nor 'val'", Clip(split)));
    }
    if (!weight.empty()) {
      const auto [end, error] =
          std::from_chars(weight.data(), weight.data() + weight.size(), entry.weight);
      if (error != std::errc() || end != weight.data() + weight.size() ||
          !std::isfinite(entry.weight) || entry.weight <= 0) {
        return RowError(what_, line,
                        fmt::format("weight '{}' is not a number above 0", Clip(weight)));
      }
      if (entry.weight < kLeastWeight || entry.weight > kMostWeight) {
        return RowError(what_, line,
                        fmt::format("weight '{}' is not {:g} to {:g}", Clip(weight), kLeastWeight,
                                    kMostWeight));
      }
    }
    entry.file = (fs::path(base_) / path).string();  // An absolute path replaces the base.
    entry.name = std::move(path);
    entry.label = std::move(label);
    entry.group = std::move(group);
    listing_.entries.push_back(std::move(entry));
    return absl::OkStatus();
  }

 private:
  const std::string& what_;
  const std::string& base_;
  Listing& listing_;
};

/// Splits RFC 4180 text into rows.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text) : text_(text) {}

  bool done() const { return at_ == text_.size(); }
  /// Line on which the next row begins, from 1.
  uint32_t line() const { return line_; }

  /// The cells of the next row, or what is wrong with it.
  absl::StatusOr<std::vector<std::string>> NextRow() {
    std::vector<std::string> cells;
    while (true) {
      absl::StatusOr<std::string> cell = NextCell();
      if (!cell.ok()) return cell.status();
      cells.push_back(*std::move(cell));
      if (cells.size() > kMaxColumns) {
        return absl::InvalidArgumentError(fmt::format("more than {} cells", kMaxColumns));
      }
      if (done()) return cells;
      const char separator = text_[at_++];
      if (separator == ',') continue;
      if (separator == '\r' && !done() && text_[at_] == '\n') ++at_;
      ++line_;
      return cells;
    }
  }

 private:
  /// Up to, not including, the comma or line end behind it.
  absl::StatusOr<std::string> NextCell() {
    if (done() || text_[at_] != '"') {
      const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
      const std::string_view cell = text_.substr(at_, end - at_);
      if (cell.find('"') != std::string_view::npos) {
        return absl::InvalidArgumentError(
            "a quote inside an unquoted cell; quote the whole cell and double the quotes in it");
      }
      at_ = end;
      return std::string(cell);
    }
    std::string cell;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c != '"') {
        cell += c;
        continue;
      }
      if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        cell += c;
        ++at_;
        continue;
      }
      ++at_;
      if (done() || text_[at_] == ',' || text_[at_] == '\r' || text_[at_] == '\n') return cell;
      return absl::InvalidArgumentError("text behind the closing quote of a cell");
    }
    return absl::InvalidArgumentError("a quoted cell is not closed");
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

/// For each column of the file its index in kColumns, or -1.
absl::StatusOr<std::vector<int>> ReadHeader(const std::vector<std::string>& header,
                                            const std::string& what, Listing& listing) {
  std::vector<int> column_of;
  std::array<bool, kColumns.size()> seen{};
  std::vector<std::string> unused;
  for (const std::string& name : header) {
    const auto* found = std::ranges::find(kColumns, name);
    if (found == kColumns.end()) {
      column_of.push_back(-1);
      unused.push_back(Clip(name));
      continue;
    }
    const auto column = static_cast<int>(found - kColumns.begin());
    if (seen[column]) return RowError(what, 1, fmt::format("column '{}' occurs twice", name));
    seen[column] = true;
    column_of.push_back(column);
  }
  if (!seen[0] || !seen[1]) {
    return RowError(
        what, 1,
        fmt::format("header '{}' lacks the column '{}'; expected path,label and "
                    "optionally split,group,weight",
                    Clip(fmt::format("{}", fmt::join(header, ","))), kColumns[seen[0] ? 1 : 0]));
  }
  if (!unused.empty()) {
    listing.warnings.push_back(fmt::format("manifest columns not used: {}",
                                           Clip(fmt::format("{}", fmt::join(unused, ", ")))));
  }
  return column_of;
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

/// A JSON value as the text a CSV cell would hold.
absl::StatusOr<std::string> CellText(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kStringValue:
      return value.string_value();
    case google::protobuf::Value::kNumberValue:
      return fmt::format("{}", value.number_value());
    case google::protobuf::Value::kNullValue:
      return std::string();
    default:
      return absl::InvalidArgumentError("is neither a string nor a number");
  }
}

}  // namespace

absl::StatusOr<Listing> ParseCsvManifest(std::string_view text, const std::string& what,
                                         const std::string& base) {
  CsvReader csv(WithoutByteOrderMark(text));
  if (csv.done()) return RowError(what, 1, "the file is empty; expected a header row");
  Listing listing;
  const absl::StatusOr<std::vector<std::string>> header = csv.NextRow();
  if (!header.ok()) return RowError(what, 1, std::string(header.status().message()));
  const absl::StatusOr<std::vector<int>> column_of = ReadHeader(*header, what, listing);
  if (!column_of.ok()) return column_of.status();
  EntryReader entries(what, base, listing);
  while (!csv.done()) {
    const uint32_t line = csv.line();
    absl::StatusOr<std::vector<std::string>> cells = csv.NextRow();
    if (!cells.ok()) return RowError(what, line, std::string(cells.status().message()));
    if (cells->size() == 1 && cells->front().empty()) continue;  // An empty line.
    if (cells->size() != column_of->size()) {
      return RowError(
          what, line,
          fmt::format("has {} cells, the header has {}", cells->size(), column_of->size()));
    }
    Row row;
    for (size_t i = 0; i < cells->size(); ++i) {
      if ((*column_of)[i] >= 0) row[(*column_of)[i]] = std::move((*cells)[i]);
    }
    if (absl::Status added = entries.Add(std::move(row), line); !added.ok()) return added;
  }
  return listing;
}

absl::StatusOr<Listing> ParseJsonlManifest(std::string_view text, const std::string& what,
                                           const std::string& base) {
  text = WithoutByteOrderMark(text);
  Listing listing;
  EntryReader entries(what, base, listing);
  uint32_t line = 0;
  while (!text.empty()) {
    ++line;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view object_text = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (object_text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    google::protobuf::Struct object;
    const auto parsed = google::protobuf::util::JsonStringToMessage(
        {object_text.data(), object_text.size()}, &object);
    if (!parsed.ok()) return RowError(what, line, "is not a JSON object");
    Row row;
    for (size_t column = 0; column < kColumns.size(); ++column) {
      const auto found = object.fields().find(std::string(kColumns[column]));
      if (found == object.fields().end()) continue;
      absl::StatusOr<std::string> cell = CellText(found->second);
      if (!cell.ok()) {
        return RowError(
            what, line,
            fmt::format("'{}' {}", kColumns[column], std::string(cell.status().message())));
      }
      row[column] = *std::move(cell);
    }
    if (absl::Status added = entries.Add(std::move(row), line); !added.ok()) return added;
  }
  return listing;
}

absl::StatusOr<Listing> ListManifest(const std::string& manifest) {
  const bool csv = manifest.ends_with(".csv");
  if (!csv && !manifest.ends_with(".jsonl")) {
    return absl::InvalidArgumentError(
        fmt::format("data.manifest '{}' is neither a .csv nor a .jsonl file", manifest));
  }
  const absl::StatusOr<std::string> text = ReadFile(manifest, kMaxManifestBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(), fmt::format("data.manifest '{}': {}", manifest,
                                                          std::string(text.status().message())));
  }
  const std::string base = fs::path(manifest).parent_path().string();
  return csv ? ParseCsvManifest(*text, manifest, base) : ParseJsonlManifest(*text, manifest, base);
}

}  // namespace tundish::data
