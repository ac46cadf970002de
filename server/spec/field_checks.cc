#include "server/spec/field_checks.h"

#include <algorithm>

#include "runtime/base/utf8.h"

namespace tundish::spec {
namespace {

constexpr std::size_t kMostPathBytes = 4096;
constexpr std::size_t kMostShownBytes = 80;

bool IsControl(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

void FieldChecks::Require(bool good, std::string_view field, std::string_view value,
                          std::string_view expected) {
  if (good) return;
  v1::InvalidField& entry = invalid_.emplace_back();
  entry.set_field(std::string(field));
  entry.set_value(Printable(value));
  entry.set_expected(std::string(expected));
}

void FieldChecks::Label(std::string_view field, std::string_view value) {
  const bool good = !value.empty() && value.size() <= 63 && value[0] >= 'a' && value[0] <= 'z' &&
                    std::ranges::all_of(value, [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                    });
  Require(good, field, value, "1 to 63 of a-z, 0-9 and -, starting with a letter");
}

void FieldChecks::AbsolutePath(std::string_view field, std::string_view value) {
  Require(!value.empty() && value[0] == '/', field, value,
          "an absolute path (the command line makes relative ones absolute)");
  Require(value.size() <= kMostPathBytes && std::ranges::none_of(value, IsControl), field, value,
          "at most 4096 bytes without control characters");
}

std::string Printable(std::string_view text) {
  std::string shown = Utf8Prefix(text, kMostShownBytes);
  std::ranges::replace_if(shown, IsControl, '?');
  if (text.size() > kMostShownBytes) shown += "…";
  return shown;
}

}  // namespace tundish::spec
