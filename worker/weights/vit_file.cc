#include "worker/weights/vit_file.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

namespace tundish::weights {
namespace {

constexpr size_t kCopyBuffer = size_t{1} << 20;

absl::Status Append(SafetensorsWriter& writer, const SafetensorsReader& reader,
                    const std::string& key, uint64_t begin, uint64_t end) {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(kCopyBuffer, end - begin)));
  while (begin < end) {
    const std::span<std::byte> piece = std::span(buffer).first(
        static_cast<size_t>(std::min<uint64_t>(buffer.size(), end - begin)));
    if (absl::Status status = reader.Read(key, begin, piece); !status.ok()) return status;
    if (absl::Status status = writer.Append(piece); !status.ok()) return status;
    begin += piece.size();
  }
  return absl::OkStatus();
}

/// A tensor of the output, and the byte ranges of the input that make it.
struct Plan {
  struct Piece {
    std::string key;
    uint64_t begin, end;
  };

  TensorSpec spec;
  std::vector<Piece> pieces;
};

absl::Status Write(const SafetensorsReader& reader, const std::vector<Plan>& plans,
                   const std::string& output) {
  std::vector<TensorSpec> specs;
  for (const Plan& plan : plans) specs.push_back(plan.spec);
  absl::StatusOr<SafetensorsWriter> writer =
      SafetensorsWriter::Create(output, specs, reader.metadata());
  if (!writer.ok()) return writer.status();
  for (const Plan& plan : plans) {
    for (const Plan::Piece& piece : plan.pieces) {
      if (absl::Status status = Append(*writer, reader, piece.key, piece.begin, piece.end);
          !status.ok()) {
        return status;
      }
    }
  }
  return writer->Commit();
}

std::vector<std::string> KeysOf(const SafetensorsReader& reader) {
  std::vector<std::string> keys;
  for (const auto& [key, info] : reader.tensors()) keys.push_back(key);
  return keys;
}

/// Rows of a timm tensor as the one or three Hugging Face tensors.
absl::Status AddHuggingFacePlans(const std::string& key, const TensorInfo& info,
                                 std::vector<Plan>& plans) {
  const absl::StatusOr<std::vector<std::string>> targets = HuggingFaceKeysOf(key);
  if (!targets.ok()) return targets.status();
  const auto parts = static_cast<int64_t>(targets->size());
  std::vector<int64_t> shape = info.shape;
  if (parts > 1) {
    if (shape.empty() || shape[0] % parts != 0) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' has {} rows, which are not {} equal parts", key,
                      shape.empty() ? 0 : shape[0], parts));
    }
    shape[0] /= parts;
  }
  const uint64_t bytes = info.bytes() / static_cast<uint64_t>(parts);
  for (size_t part = 0; part < targets->size(); ++part) {
    plans.push_back(
        {{(*targets)[part], info.dtype, shape}, {{key, part * bytes, (part + 1) * bytes}}});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VitFile> VitFile::Open(const std::string& path) {
  absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  if (!reader.ok()) return reader.status();
  const std::optional<Layout> layout = DetectLayout(KeysOf(*reader));
  if (!layout.has_value()) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' holds no Vision Transformer: neither timm's 'patch_embed.proj.weight' "
                    "nor Hugging Face's "
                    "'vit.embeddings.patch_embeddings.projection.weight' is among its {} tensors",
                    path, reader->tensors().size()));
  }
  VitFile file(*std::move(reader), *layout);
  if (absl::Status status = file.MapTensors(); !status.ok()) {
    return absl::Status(status.code(),
                        fmt::format("'{}': {}", path, std::string(status.message())));
  }
  return file;
}

absl::Status VitFile::MapTensors() {
  std::map<std::string, std::map<int, std::string>> parts_of;  // timm key → part → key in the file
  std::map<std::string, int> parts_needed;
  for (const auto& [key, info] : reader_.tensors()) {
    KeyPart target{key};
    if (layout_ == Layout::kHuggingFace) {
      absl::StatusOr<std::optional<KeyPart>> mapped = TimmKeyOf(key);
      if (!mapped.ok()) return mapped.status();
      if (!mapped->has_value()) continue;
      target = **std::move(mapped);
    }
    const auto [place, fresh] = parts_of[target.key].emplace(target.part, key);
    if (!fresh) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' and '{}' are the same tensor", place->second, key));
    }
    parts_needed[target.key] = target.parts;
  }
  for (const auto& [timm_key, parts] : parts_of) {
    const int needed = parts_needed.at(timm_key);
    if (static_cast<int>(parts.size()) != needed) {
      return absl::InvalidArgumentError(
          fmt::format("'{}' has {} of its {} parts", timm_key, parts.size(), needed));
    }
    const TensorInfo& first = reader_.tensors().at(parts.begin()->second);
    std::vector<std::string>& pieces = pieces_[timm_key];
    for (const auto& [part, key] : parts) {
      const TensorInfo& info = reader_.tensors().at(key);
      if (needed > 1 &&
          (info.dtype != first.dtype || info.shape != first.shape || info.shape.empty())) {
        return absl::InvalidArgumentError(
            fmt::format("'{}' and '{}' must have one type and shape", parts.begin()->second, key));
      }
      pieces.push_back(key);
    }
    TensorSpec spec{timm_key, first.dtype, first.shape};
    // The reader bounds extents so that three times one fits.
    if (needed > 1) spec.shape[0] *= needed;
    tensors_.emplace(timm_key, std::move(spec));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> VitFile::PiecesOf(std::string_view timm_key) const {
  const auto found = pieces_.find(timm_key);
  if (found == pieces_.end()) {
    return absl::NotFoundError(fmt::format("'{}' holds no tensor '{}'", reader_.label(), timm_key));
  }
  return found->second;
}

absl::Status VitFile::Read(std::string_view timm_key, std::span<std::byte> out) const {
  const absl::StatusOr<std::vector<std::string>> pieces = PiecesOf(timm_key);
  if (!pieces.ok()) return pieces.status();
  uint64_t total = 0;
  for (const std::string& key : *pieces) total += reader_.tensors().at(key).bytes();
  if (out.size() != total) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' has {} bytes, the buffer {}", timm_key, total, out.size()));
  }
  for (const std::string& key : *pieces) {
    const auto bytes = static_cast<size_t>(reader_.tensors().at(key).bytes());
    if (absl::Status status = reader_.Read(key, 0, out.first(bytes)); !status.ok()) return status;
    out = out.subspan(bytes);
  }
  return absl::OkStatus();
}

absl::Status ConvertVitFile(const std::string& input, const std::string& output, Layout layout) {
  const absl::StatusOr<VitFile> file = VitFile::Open(input);
  if (!file.ok()) return file.status();
  const SafetensorsReader& reader = file->reader();
  std::vector<Plan> plans;
  if (file->layout() == layout) {
    for (const auto& [key, info] : reader.tensors()) {
      plans.push_back({{key, info.dtype, info.shape}, {{key, 0, info.bytes()}}});
    }
  } else if (layout == Layout::kHuggingFace) {
    for (const auto& [key, info] : reader.tensors()) {
      if (absl::Status status = AddHuggingFacePlans(key, info, plans); !status.ok()) return status;
    }
  } else {
    for (const auto& [key, spec] : file->tensors()) {
      Plan plan{spec, {}};
      const absl::StatusOr<std::vector<std::string>> pieces = file->PiecesOf(key);
      if (!pieces.ok()) return pieces.status();
      for (const std::string& piece : *pieces) {
        plan.pieces.push_back({piece, 0, reader.tensors().at(piece).bytes()});
      }
      plans.push_back(std::move(plan));
    }
  }
  return Write(reader, plans, output);
}

}  // namespace tundish::weights
