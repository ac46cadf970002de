#include "server/partitioner/natural_order.h"

#include <cstddef>

namespace tundish::partitioner {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

/// Takes the run of digits at the front of `text` without its leading zeros.
std::string_view TakeNumber(std::string_view& text) {
  while (!text.empty() && text[0] == '0') text.remove_prefix(1);
  std::size_t size = 0;
  while (size < text.size() && IsDigit(text[size])) ++size;
  const std::string_view number = text.substr(0, size);
  text.remove_prefix(size);
  return number;
}

}  // namespace

bool NaturalLess(std::string_view a, std::string_view b) {
  std::string_view rest_a = a;
  std::string_view rest_b = b;
  while (!rest_a.empty() && !rest_b.empty()) {
    if (IsDigit(rest_a[0]) && IsDigit(rest_b[0])) {
      const std::string_view number_a = TakeNumber(rest_a);
      const std::string_view number_b = TakeNumber(rest_b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
      continue;
    }
    if (rest_a[0] != rest_b[0]) return rest_a[0] < rest_b[0];
    rest_a.remove_prefix(1);
    rest_b.remove_prefix(1);
  }
  if (rest_a.empty() != rest_b.empty()) return rest_a.empty();
  // Equal but for leading zeros: any fixed order serves.
  return a < b;
}

}  // namespace tundish::partitioner
