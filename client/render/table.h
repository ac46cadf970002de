#pragma once

#include <string>
#include <vector>

namespace tundish::client {

/// Rows of cells printed in aligned columns, two spaces apart, no trailing blanks. Widths count
/// code points.
class Table {
 public:
  enum class Align { kLeft, kRight };

  /// One heading per column; `aligns` may be shorter, the rest is kLeft.
  explicit Table(std::vector<std::string> headings, std::vector<Align> aligns = {});

  /// Takes as many cells as there are headings; missing ones are empty.
  void AddRow(std::vector<std::string> cells);

  /// Headings and rows, each line indented by `indent` blanks and ended by '\n'.
  std::string ToString(int indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<Align> aligns_;
};

}  // namespace tundish::client
