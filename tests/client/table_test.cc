#include "client/render/table.h"

#include <gtest/gtest.h>

namespace tundish::client {
namespace {

TEST(TableTest, AlignsByCodePoints) {
  Table table({"class", "images", "note"}, {Table::Align::kLeft, Table::Align::kRight});
  table.AddRow({"Löcher", "7", "x"});
  table.AddRow({"ok", "1200"});
  EXPECT_EQ(table.ToString(1),
            " class   images  note\n"
            " Löcher       7  x\n"
            " ok        1200\n");
}

}  // namespace
}  // namespace tundish::client
