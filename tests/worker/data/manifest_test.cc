#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"
#include "worker/data/source.h"

namespace tundish::data {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(CsvManifestTest, ReadsRows) {
  const auto listing = ParseCsvManifest(
      "\xEF\xBB\xBFpath,note,label,split,group,weight\r\n"
      "a.png,\"one, two\",ok,train,g1,2.5\r\n"
      "\r\n"
      "\"sub/b \"\"x\"\".png\",\"two\nlines\",bad,val,,\r\n"
      "/abs/c.png,,ok,,g2,1",
      "m.csv", "/base");
  ASSERT_TRUE(listing.ok()) << listing.status();
  const std::vector<Entry>& entries = listing->entries;
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].name, "a.png");
  EXPECT_EQ(entries[0].file, "/base/a.png");
  EXPECT_EQ(entries[0].label, "ok");
  EXPECT_EQ(entries[0].split, Split::kTrain);
  EXPECT_EQ(entries[0].group, "g1");
  EXPECT_EQ(entries[0].weight, 2.5F);
  EXPECT_EQ(entries[0].line, 2U);
  EXPECT_EQ(entries[1].name, "sub/b \"x\".png");
  EXPECT_EQ(entries[1].split, Split::kValidation);
  EXPECT_EQ(entries[1].weight, 1.0F);
  EXPECT_EQ(entries[1].line, 4U);
  EXPECT_EQ(entries[2].file, "/abs/c.png");
  EXPECT_EQ(entries[2].split, std::nullopt);
  EXPECT_EQ(entries[2].line, 6U);
  ASSERT_EQ(listing->warnings.size(), 1U);
  EXPECT_THAT(listing->warnings[0], HasSubstr("note"));
}

TEST(CsvManifestTest, NamesLineAndRemedyOfEachError) {
  struct Case {
    const char* text;
    const char* line;
    const char* problem;
  };
  const Case cases[] = {
      {"", "line 1", "expected a header row"},
      {"path,lable\n", "line 1", "lacks the column 'label'"},
      {"label\n", "line 1", "lacks the column 'path'"},
      {"path,label,path\n", "line 1", "occurs twice"},
      {"path,label\na,ok\nb\n", "line 3", "has 1 cells, the header has 2"},
      {"path,label\na,ok,x\n", "line 2", "has 3 cells"},
      {"path,label\n,ok\n", "line 2", "'path' is empty"},
      {"path,label\na,\n", "line 2", "'label' is empty"},
      {"path,label\n\"a,ok\n", "line 2", "not closed"},
      {"path,label\n\"a\"b,ok\n", "line 2", "behind the closing quote"},
      {"path,label\na\"b,ok\n", "line 2", "quote inside an unquoted cell"},
      {"path,label,split\na,ok,test\n", "line 2", "split 'test' is neither 'train' nor 'val'"},
      {"path,label,weight\na,ok,heavy\n", "line 2", "weight 'heavy' is not a number above 0"},
      {"path,label,weight\na,ok,0\n", "line 2", "weight '0' is not a number above 0"},
      {"path,label,weight\na,ok,nan\n", "line 2", "weight 'nan'"},
      {"path,label,weight\na,ok,1e30\n", "line 2", "weight '1e30' is not 1e-06 to 1e+06"},
      {"path,label,weight\na,ok,1e-30\n", "line 2", "weight '1e-30' is not"},
      {"path,label\na\xFF,ok\n", "line 2", "not valid UTF-8"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const auto listing = ParseCsvManifest(c.text, "m.csv", "");
    ASSERT_FALSE(listing.ok());
    EXPECT_THAT(Message(listing.status()), HasSubstr("'m.csv'"));
    EXPECT_THAT(Message(listing.status()), HasSubstr(c.line));
    EXPECT_THAT(Message(listing.status()), HasSubstr(c.problem));
  }
}

TEST(JsonlManifestTest, ReadsObjects) {
  const auto listing = ParseJsonlManifest(
      "{\"path\": \"a.png\", \"label\": \"ok\", \"weight\": 0.5, \"text\": [1, 2]}\n"
      "\n"
      "{\"label\": 3, \"path\": \"\\u00fc.png\", \"split\": \"val\", \"group\": null}",
      "m.jsonl", "base");
  ASSERT_TRUE(listing.ok()) << listing.status();
  ASSERT_EQ(listing->entries.size(), 2U);
  EXPECT_EQ(listing->entries[0].file, "base/a.png");
  EXPECT_EQ(listing->entries[0].weight, 0.5F);
  EXPECT_EQ(listing->entries[1].name, "ü.png");
  EXPECT_EQ(listing->entries[1].label, "3");
  EXPECT_EQ(listing->entries[1].split, Split::kValidation);
  EXPECT_EQ(listing->entries[1].line, 3U);
}

TEST(JsonlManifestTest, NamesLineOfEachError) {
  struct Case {
    const char* text;
    const char* want;
  };
  const Case cases[] = {
      {"{\"path\": \"a\", \"label\": \"x\"}\n{oops", "line 2: is not a JSON object"},
      {"[1]", "line 1: is not a JSON object"},
      {"{\"label\": \"x\"}", "line 1: 'path' is empty"},
      {"{\"path\": \"a\", \"label\": [\"x\"]}", "line 1: 'label' is neither a string nor a number"},
  };
  for (const Case& c : cases) {
    const auto listing = ParseJsonlManifest(c.text, "m.jsonl", "");
    ASSERT_FALSE(listing.ok()) << c.text;
    EXPECT_THAT(Message(listing.status()), HasSubstr(c.want));
  }
}

TEST(ListManifestTest, RefusesMissingAndUnknownFiles) {
  const auto missing = ListManifest("/nowhere/m.csv");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(missing.status()), HasSubstr("/nowhere/m.csv"));
  const auto odd = ListManifest("/nowhere/m.xlsx");
  EXPECT_THAT(Message(odd.status()), HasSubstr("neither a .csv nor a .jsonl"));
}

TEST(IsPlainUtf8Test, KnowsItsRules) {
  EXPECT_TRUE(IsPlainUtf8("plain"));
  EXPECT_TRUE(IsPlainUtf8("ü€😀"));
  EXPECT_FALSE(IsPlainUtf8(std::string_view("a\0b", 3)));
  EXPECT_FALSE(IsPlainUtf8("\xC3"));              // Ends early.
  EXPECT_FALSE(IsPlainUtf8("\xC0\xAF"));          // Overlong.
  EXPECT_FALSE(IsPlainUtf8("\xED\xA0\x80"));      // Surrogate.
  EXPECT_FALSE(IsPlainUtf8("\xF4\x90\x80\x80"));  // Above U+10FFFF.
  EXPECT_FALSE(IsPlainUtf8("\x80"));
}

}  // namespace
}  // namespace tundish::data
