#include <cstdint>
#include <string_view>

#include "worker/data/source.h"

namespace tundish::data {
namespace {

struct LeadByte {
  /// Bytes that follow; -1: no character begins like this.
  int more = -1;
  uint32_t bits = 0;
  /// Smaller values have a shorter form, which is the only one allowed.
  uint32_t smallest = 0;
};

LeadByte ReadLead(uint8_t byte) {
  if (byte < 0x80) return {.more = 0, .bits = byte};
  if (byte >> 5 == 0x06) return {.more = 1, .bits = byte & 0x1FU, .smallest = 0x80};
  if (byte >> 4 == 0x0E) return {.more = 2, .bits = byte & 0x0FU, .smallest = 0x800};
  if (byte >> 3 == 0x1E) return {.more = 3, .bits = byte & 0x07U, .smallest = 0x10000};
  return {};
}

bool IsCharacter(uint32_t code) {
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code != 0 && code <= 0x10FFFF && !surrogate;
}

}  // namespace

bool IsPlainUtf8(std::string_view text) {
  while (!text.empty()) {
    const LeadByte lead = ReadLead(static_cast<uint8_t>(text[0]));
    if (lead.more < 0 || text.size() <= static_cast<size_t>(lead.more)) return false;
    uint32_t code = lead.bits;
    for (int i = 1; i <= lead.more; ++i) {
      const auto next = static_cast<uint8_t>(text[i]);
      if (next >> 6 != 2) return false;
      code = code << 6 | (next & 0x3FU);
    }
    if (code < lead.smallest || !IsCharacter(code)) return false;
    text.remove_prefix(1 + static_cast<size_t>(lead.more));
  }
  return true;
}

}  // namespace tundish::data
