#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <fmt/core.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include "runtime/base/sha256.h"
#include "server/spec/field_checks.h"
#include "server/spec/resolve.h"

namespace tundish::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool HasValue(const Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  return field->is_repeated() ? reflection->FieldSize(message, field) > 0
                              : reflection->HasField(message, field);
}

/// One scalar (or element `index` of a repeated one) as text that differs whenever the value does.
std::string Scalar(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* reflection = message.GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    return index < 0 ? reflection->GetString(message, field)
                     : reflection->GetRepeatedString(message, field, index);
  }
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, field, index, &text);
  return text;
}

std::string Value(const Message& message, const FieldDescriptor* field) {
  if (!field->is_repeated()) {
    const bool unset = field->has_presence() && !HasValue(message, field);
    return unset ? "unset" : Scalar(message, field, -1);
  }
  std::string text = "[";
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) text += (i > 0 ? ", " : "") + Scalar(message, field, i);
  return text + "]";
}

struct Difference {
  std::string path;
  std::string before;
  std::string now;
};

/// Lists of messages (none so far is long) are compared as text.
void CompareElements(const Message& before, const Message& now, const FieldDescriptor* field,
                     const std::string& path, std::vector<Difference>& found) {
  const auto text = [field](const Message& message) {
    std::string elements;
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int i = 0; i < size; ++i) {
      elements +=
          (i > 0 ? ", {" : "{") +
          message.GetReflection()->GetRepeatedMessage(message, field, i).ShortDebugString() + "}";
    }
    return "[" + elements + "]";
  };
  const std::string old_value = text(before);
  const std::string new_value = text(now);
  if (old_value != new_value) found.push_back({path, old_value, new_value});
}

/// In field order, depth first.
void Compare(const Message& before, const Message& now, const std::string& prefix,
             std::vector<Difference>& found) {
  const auto* descriptor = before.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const std::string path = prefix + field->name();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (field->is_repeated()) {
        CompareElements(before, now, field, path, found);
      } else {
        Compare(before.GetReflection()->GetMessage(before, field),
                now.GetReflection()->GetMessage(now, field), path + ".", found);
      }
      continue;
    }
    const std::string old_value = Value(before, field);
    const std::string new_value = Value(now, field);
    if (old_value != new_value) found.push_back({path, old_value, new_value});
  }
}

}  // namespace

absl::StatusOr<std::uint32_t> TotalSteps(const v1::JobSpec& spec, std::uint32_t train_images) {
  if (train_images == 0) {
    return absl::InvalidArgumentError(
        "the training split has no images: expected at least 1 (is data.validation_fraction too "
        "large?)");
  }
  const v1::TrainingSpec& training = spec.training();
  if (training.steps() > 0) return training.steps();
  // epochs ≤ 100000 and images < 2³²: the product fits.
  const std::uint64_t samples = std::uint64_t{training.epochs()} * train_images;
  const std::uint64_t batch = training.global_batch();
  const std::uint64_t steps = (samples + batch - 1) / batch;
  if (steps > std::numeric_limits<std::uint32_t>::max()) {
    return absl::InvalidArgumentError(fmt::format(
        "training.epochs={} over {} images are {} steps: expected at most {}", training.epochs(),
        train_images, steps, std::numeric_limits<std::uint32_t>::max()));
  }
  return static_cast<std::uint32_t>(steps);
}

std::string SpecDifference(const v1::JobSpec& before, const v1::JobSpec& now) {
  constexpr std::size_t kMostNamed = 8;
  std::vector<Difference> found;
  Compare(before, now, "", found);
  if (found.empty()) return "";
  std::string text = fmt::format("{} is {}, was {}", found[0].path, Printable(found[0].now),
                                 Printable(found[0].before));
  for (std::size_t i = 1; i < std::min(found.size(), kMostNamed); ++i) {
    text += (i == 1 ? "; also " : ", ") + found[i].path;
  }
  if (found.size() > kMostNamed) text += fmt::format(" and {} more", found.size() - kMostNamed);
  return text;
}

std::string SpecHash(const v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  Sha256 hash;
  hash.Add(bytes);
  return ToHex(hash.Finish());
}

}  // namespace tundish::spec
