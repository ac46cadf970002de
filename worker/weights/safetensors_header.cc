#include "worker/weights/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

namespace tundish::weights {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  uint64_t bytes;
};

constexpr DTypeRow kDTypes[] = {
    {DType::kBool, "BOOL", 1}, {DType::kU8, "U8", 1},     {DType::kI8, "I8", 1},
    {DType::kI16, "I16", 2},   {DType::kU16, "U16", 2},   {DType::kI32, "I32", 4},
    {DType::kU32, "U32", 4},   {DType::kI64, "I64", 8},   {DType::kU64, "U64", 8},
    {DType::kF16, "F16", 2},   {DType::kBF16, "BF16", 2}, {DType::kF32, "F32", 4},
    {DType::kF64, "F64", 8},
};

/// Beyond every file; three times it still fits 63 bits.
constexpr uint64_t kMostBytes = uint64_t{1} << 60;

const DTypeRow& RowOf(DType dtype) {
  return *std::ranges::find(kDTypes, dtype, &DTypeRow::dtype);
}

/// Builds the header while the text is read. Every callback returns false to stop at the first
/// fault, so that nested or endless values are never stored.
class HeaderBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderBuilder(const ReadLimits& limits) : limits_(limits) {}

  const std::string& fault() const { return fault_; }
  SafetensorsHeader Take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (depth_ == 0 || (depth_ == 1 && !name_.empty() && !in_shape_ && !in_offsets_)) {
      ++depth_;
      return depth_ == 1 || BeginEntry();
    }
    return Fail("an object where none belongs");
  }

  bool end_object() override {
    if (--depth_ == 1 && !is_metadata_) return EndEntry();
    return true;
  }

  bool key(string_t& key) override {
    if (depth_ == 1) {
      name_ = key;
      if (name_.empty() || name_.size() > limits_.name_bytes) {
        return Fail(fmt::format("a tensor name of {} bytes; 1 to {} are possible", name_.size(),
                                limits_.name_bytes));
      }
      if (!names_.insert(name_).second) return Fail(fmt::format("'{}' appears twice", name_));
      if (names_.size() > limits_.tensors + 1) {
        return Fail(fmt::format("more than {} tensors", limits_.tensors));
      }
      return true;
    }
    field_ = key;
    if (!is_metadata_ && !fields_.insert(field_).second) {
      return Fail(fmt::format("'{}' of '{}' appears twice", field_, name_));
    }
    return true;
  }

  bool string(string_t& text) override {
    if (depth_ == 2 && is_metadata_) {
      if (!header_.metadata.emplace(field_, text).second) {
        return Fail(fmt::format("metadata '{}' appears twice", field_));
      }
      return true;
    }
    if (depth_ != 2 || field_ != "dtype" || in_shape_ || in_offsets_) return Unexpected("a string");
    const std::optional<DType> dtype = ParseDType(text);
    if (!dtype.has_value()) {
      return Fail(fmt::format("'{}' has the unknown dtype '{:.32}'", name_, text));
    }
    entry_.dtype = *dtype;
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || is_metadata_ || in_shape_ || in_offsets_) return Unexpected("an array");
    in_shape_ = field_ == "shape";
    in_offsets_ = field_ == "data_offsets";
    return in_shape_ || in_offsets_ || Unexpected("an array");
  }

  bool end_array() override {
    if (in_offsets_ && offsets_.size() != 2) {
      return Fail(
          fmt::format("data_offsets of '{}' hold {} numbers, not 2", name_, offsets_.size()));
    }
    in_shape_ = in_offsets_ = false;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (in_shape_) {
      if (entry_.shape.size() >= limits_.rank) {
        return Fail(fmt::format("'{}' has more than {} dims", name_, limits_.rank));
      }
      if (value > kMostBytes) {
        return Fail(fmt::format("'{}' has an extent of {}", name_, value));
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (!in_offsets_) return Unexpected("a number");
    if (offsets_.size() >= 2)
      return Fail(fmt::format("data_offsets of '{}' hold more than 2 numbers", name_));
    offsets_.push_back(value);
    return true;
  }

  bool number_integer(number_integer_t value) override {
    return Fail(fmt::format("'{}' holds the negative number {}", name_, value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Fail(fmt::format("'{}' holds the number {:.32}, which is not whole", name_, text));
  }
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool binary(binary_t&) override { return Unexpected("binary"); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return Fail(fmt::format("not JSON at byte {}", position));
  }

 private:
  bool Fail(std::string fault) {
    if (fault_.empty()) fault_ = std::move(fault);
    return false;
  }
  bool Unexpected(std::string_view what) {
    return Fail(fmt::format("{} where none belongs, near '{}'", what, name_));
  }

  bool BeginEntry() {
    is_metadata_ = name_ == "__metadata__";
    entry_ = {};
    offsets_.clear();
    fields_.clear();
    return true;
  }

  bool EndEntry() {
    for (const char* const field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) return Fail(fmt::format("'{}' has no {}", name_, field));
    }
    if (fields_.size() != 3)
      return Fail(fmt::format("'{}' has fields beyond the known three", name_));
    if (offsets_.size() != 2) return Fail(fmt::format("'{}' has no data_offsets", name_));
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.tensors.emplace(name_, std::move(entry_));
    return true;
  }

  const ReadLimits& limits_;  // The parse call's argument.
  SafetensorsHeader header_;
  std::string fault_;
  int depth_ = 0;
  bool is_metadata_ = false;
  bool in_shape_ = false;
  bool in_offsets_ = false;
  std::string name_, field_;
  std::set<std::string> names_, fields_;
  TensorInfo entry_;
  std::vector<uint64_t> offsets_;
};

/// Sizes match shapes, and the tensors tile [0, data_bytes).
absl::Status CheckLayout(const SafetensorsHeader& header, uint64_t data_bytes) {
  std::vector<std::pair<const TensorInfo*, const std::string*>> by_offset;
  for (const auto& [name, info] : header.tensors) {
    const absl::StatusOr<uint64_t> bytes = TensorByteSize(info.dtype, info.shape);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("'{}': {}", name, std::string(bytes.status().message())));
    }
    if (info.begin > info.end || info.end > data_bytes) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' lies at [{}, {}) of a data section of {} bytes", name, info.begin,
                      info.end, data_bytes));
    }
    if (info.bytes() != *bytes) {
      return absl::InvalidArgumentError(fmt::format("'{}' takes {} bytes, but {} [{}] needs {}",
                                                    name, info.bytes(), DTypeName(info.dtype),
                                                    fmt::join(info.shape, ", "), *bytes));
    }
    by_offset.emplace_back(&info, &name);
  }
  std::ranges::sort(by_offset, {},
                    [](const auto& item) { return std::pair(item.first->begin, item.first->end); });
  uint64_t covered = 0;
  for (const auto& [info, name] : by_offset) {
    if (info->begin != covered) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' starts at byte {}, but the tensors before it end at {}", *name,
                      info->begin, covered));
    }
    covered = info->end;
  }
  if (covered != data_bytes) {
    return absl::InvalidArgumentError(fmt::format(
        "the tensors end at byte {} of a data section of {} bytes", covered, data_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  return RowOf(dtype).name;
}

std::optional<DType> ParseDType(std::string_view name) {
  const auto* const found = std::ranges::find(kDTypes, name, &DTypeRow::name);
  if (found == std::end(kDTypes)) return std::nullopt;
  return found->dtype;
}

uint64_t ByteSize(DType dtype) {
  return RowOf(dtype).bytes;
}

absl::StatusOr<uint64_t> TensorByteSize(DType dtype, const std::vector<int64_t>& shape) {
  uint64_t bytes = ByteSize(dtype);
  // A zero anywhere makes the tensor empty, but must not hide an absurd extent.
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return absl::InvalidArgumentError(fmt::format("an extent of {}", extent));
    if (extent == 0) {
      empty = true;
      continue;
    }
    if (static_cast<uint64_t>(extent) > kMostBytes / bytes) {
      return absl::InvalidArgumentError(
          fmt::format("a shape of [{}] is beyond every memory", fmt::join(shape, ", ")));
    }
    bytes *= static_cast<uint64_t>(extent);
  }
  return empty ? 0 : bytes;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                                         const ReadLimits& limits) {
  HeaderBuilder builder(limits);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &builder) || !builder.fault().empty()) {
    return absl::InvalidArgumentError(fmt::format("bad header: {}", builder.fault()));
  }
  SafetensorsHeader header = builder.Take();
  if (absl::Status status = CheckLayout(header, data_bytes); !status.ok()) return status;
  return header;
}

absl::StatusOr<std::string> FormatSafetensorsHeader(const std::vector<TensorSpec>& tensors,
                                                    const Metadata& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' is no name for a tensor, or appears twice", tensor.name));
    }
    const absl::StatusOr<uint64_t> bytes = TensorByteSize(tensor.dtype, tensor.shape);
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("'{}': {}", tensor.name, std::string(bytes.status().message())));
    }
    // Built aside and moved in: ordered_json looks a key up by walking all keys before it.
    json.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        tensor.name, nlohmann::ordered_json{{"dtype", DTypeName(tensor.dtype)},
                                            {"shape", tensor.shape},
                                            {"data_offsets", {offset, offset + *bytes}}});
    offset += *bytes;
  }
  std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(text.size() >> (8 * i));
  return header + text;
}

}  // namespace tundish::weights
