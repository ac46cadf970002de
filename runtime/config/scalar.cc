#include "runtime/config/scalar.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_join.h>
#include <fmt/core.h>

namespace tundish {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// absl::string_view of Debian's absl is not std::string_view.
absl::string_view Absl(std::string_view text) {
  return {text.data(), text.size()};
}

template <class T>
std::string RangeOf() {
  return fmt::format("a whole number from {} to {}", std::numeric_limits<T>::min(),
                     std::numeric_limits<T>::max());
}

std::string ExpectedScalar(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return RangeOf<int32_t>();
    case FieldDescriptor::CPPTYPE_INT64:
      return RangeOf<int64_t>();
    case FieldDescriptor::CPPTYPE_UINT32:
      return RangeOf<uint32_t>();
    case FieldDescriptor::CPPTYPE_UINT64:
      return RangeOf<uint64_t>();
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a finite number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> names;
      for (int i = 0; i < field.enum_type()->value_count(); ++i) {
        const std::string& name = field.enum_type()->value(i)->name();
        if (!absl::EndsWith(name, "_UNSPECIFIED")) names.push_back(name);
      }
      return fmt::format("one of {}", absl::StrJoin(names, ", "));
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return field.type() == FieldDescriptor::TYPE_BYTES ? "base 64 text" : "text";
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      std::vector<std::string> keys;
      for (int i = 0; i < field.message_type()->field_count(); ++i) {
        keys.push_back(field.message_type()->field(i)->name());
      }
      if (keys.empty()) return "an empty mapping, {}";
      return fmt::format("a mapping with keys out of {}", absl::StrJoin(keys, ", "));
    }
  }
  return "a value";
}

/// Whole numbers are decimal digits with an optional minus: no 1e3, 0x10 or 007, whose meaning
/// differs between readers.
bool IsPlainInteger(std::string_view text) {
  if (!text.empty() && text.front() == '-') text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return false;
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

template <class T>
bool ParseInteger(std::string_view text, T* value) {
  return IsPlainInteger(text) && absl::SimpleAtoi(Absl(text), value);
}

/// `limit` is the largest finite value of the field's type.
bool ParseFinite(std::string_view text, double limit, double* value) {
  return !text.empty() && !absl::ascii_isspace(text.front()) && !absl::ascii_isspace(text.back()) &&
         absl::SimpleAtod(Absl(text), value) && std::isfinite(*value) && std::abs(*value) <= limit;
}

const EnumValueDescriptor* FindEnumValue(const EnumDescriptor& type, std::string_view text) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (absl::EqualsIgnoreCase(type.value(i)->name(), Absl(text))) return type.value(i);
  }
  return nullptr;
}

/// `Set` and `Add` of reflection differ only in name.
template <class T, class SetMember, class AddMember>
void Store(const FieldDescriptor& field, Message* message, T value, SetMember set, AddMember add) {
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  if (field.is_repeated()) {
    (reflection.*add)(message, &field, std::move(value));
  } else {
    (reflection.*set)(message, &field, std::move(value));
  }
}

bool StoreText(std::string_view text, bool quoted, const FieldDescriptor& field, Message* message) {
  using google::protobuf::Reflection;
  std::string value(text);
  if (field.type() == FieldDescriptor::TYPE_BYTES) {
    if (!absl::Base64Unescape(Absl(text), &value)) return false;
  } else if (!quoted && (text.empty() || text == "~")) {
    return false;
  }
  Store(field, message, std::move(value), &Reflection::SetString, &Reflection::AddString);
  return true;
}

bool Assign(std::string_view text, bool quoted, const FieldDescriptor& field, Message* message) {
  using google::protobuf::Reflection;
  const auto integer = [&]<class T>(T value, auto set, auto add) {
    if (!ParseInteger(text, &value)) return false;
    Store(field, message, value, set, add);
    return true;
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return integer(int32_t{}, &Reflection::SetInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return integer(int64_t{}, &Reflection::SetInt64, &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return integer(uint32_t{}, &Reflection::SetUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return integer(uint64_t{}, &Reflection::SetUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value = 0;
      if (!ParseFinite(text, std::numeric_limits<double>::max(), &value)) return false;
      Store(field, message, value, &Reflection::SetDouble, &Reflection::AddDouble);
      return true;
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      double value = 0;
      if (!ParseFinite(text, std::numeric_limits<float>::max(), &value)) return false;
      Store(field, message, static_cast<float>(value), &Reflection::SetFloat,
            &Reflection::AddFloat);
      return true;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool value = absl::EqualsIgnoreCase(Absl(text), "true");
      if (quoted || (!value && !absl::EqualsIgnoreCase(Absl(text), "false"))) return false;
      Store(field, message, value, &Reflection::SetBool, &Reflection::AddBool);
      return true;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = FindEnumValue(*field.enum_type(), text);
      if (value == nullptr) return false;
      Store(field, message, value, &Reflection::SetEnum, &Reflection::AddEnum);
      return true;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return StoreText(text, quoted, field, message);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return false;
  }
  return false;
}

}  // namespace

absl::Status SetScalar(std::string_view text, bool quoted, const FieldDescriptor& field,
                       Message* message) {
  if (Assign(text, quoted, field, message)) return absl::OkStatus();
  return absl::InvalidArgumentError(ExpectedScalar(field));
}

std::string ExpectedValue(const FieldDescriptor& field) {
  if (field.is_map()) return "a mapping";
  if (field.is_repeated()) return fmt::format("a list, each item {}", ExpectedScalar(field));
  return ExpectedScalar(field);
}

}  // namespace tundish
