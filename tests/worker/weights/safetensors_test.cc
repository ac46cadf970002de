#include "worker/weights/safetensors.h"

#include <cstring>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/weights/temporary_folder.h"

namespace tundish::weights {
namespace {

std::string Length(uint64_t value) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string Framed(const std::string& json, size_t data_bytes) {
  return Length(json.size()) + json + std::string(data_bytes, 'x');
}

void WriteRaw(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(SafetensorsReaderTest, RefusesHostileFiles) {
  const std::string good = Entry("a", "F32", "[2]", "[0,8]");
  struct Case {
    const char* name;
    std::string bytes;
    const char* want;
  };
  const Case cases[] = {
      {"empty file", "", "0 bytes"},
      {"shorter than the length", "1234567", "7 bytes"},
      {"header longer than the file", Length(1000) + "{}", "claims 1000 bytes"},
      {"header length near 2^64", Length(~uint64_t{0}) + "{}", "claims 18446744073709551615"},
      {"header length -8", Length(~uint64_t{0} - 7) + "{}", "claims"},
      {"not JSON", Framed("hello", 0), "not JSON"},
      {"cut JSON", Framed("{" + good, 8), "not JSON"},
      {"text after the JSON", Framed("{" + good + "}{}", 8), "not JSON"},
      {"not UTF-8", Framed("{\"\xff\":{}}", 0), "not JSON"},
      {"a list", Framed("[1]", 0), "array"},
      {"a number", Framed("7", 0), "a number"},
      {"deeply nested", Framed("{\"a\":" + std::string(100000, '['), 0), "array"},
      {"nested objects", Framed("{\"a\":{\"shape\":{}}}", 0), "object"},
      {"nested shape", Framed("{" + Entry("a", "F32", "[[2]]", "[0,8]") + "}", 8), "array"},
      {"repeated name", Framed("{" + good + "," + good + "}", 8), "'a' appears twice"},
      {"repeated field", Framed("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0),
       "appears twice"},
      {"no dtype", Framed("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8), "no dtype"},
      {"no shape", Framed("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8), "no shape"},
      {"unknown dtype", Framed("{" + Entry("a", "F33", "[2]", "[0,8]") + "}", 8), "F33"},
      {"dtype and size differ", Framed("{" + Entry("a", "F64", "[2]", "[0,8]") + "}", 8),
       "needs 16"},
      {"negative extent", Framed("{" + Entry("a", "F32", "[-2]", "[0,8]") + "}", 8), "-2"},
      {"extents overflow",
       Framed("{" + Entry("a", "F32", "[4294967296,4294967296,4]", "[0,8]") + "}", 8), "beyond"},
      {"an extent of 2^63",
       Framed("{" + Entry("a", "F32", "[9223372036854775808]", "[0,8]") + "}", 8),
       "extent of 9223372036854775808"},
      {"zero hides an absurd extent",
       Framed("{" + Entry("a", "F32", "[0,1152921504606846976,1152921504606846976]", "[0,0]") + "}",
              0),
       "beyond"},
      {"an extent of 2^70",
       Framed("{" + Entry("a", "F32", "[1180591620717411303424]", "[0,8]") + "}", 8), "not whole"},
      {"fractional extent", Framed("{" + Entry("a", "F32", "[2.5]", "[0,8]") + "}", 8),
       "not whole"},
      {"too many dims", Framed("{" + Entry("a", "F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") + "}", 8),
       "more than 8 dims"},
      {"beyond the file", Framed("{" + Entry("a", "F32", "[3]", "[0,12]") + "}", 8), "8 bytes"},
      {"negative offset", Framed("{" + Entry("a", "F32", "[2]", "[-8,0]") + "}", 8), "-8"},
      {"reversed offsets", Framed("{" + Entry("a", "F32", "[2]", "[8,0]") + "}", 8), "[8, 0)"},
      {"one offset", Framed("{" + Entry("a", "F32", "[2]", "[8]") + "}", 8), "1 numbers"},
      {"three offsets", Framed("{" + Entry("a", "F32", "[2]", "[0,8,9]") + "}", 8), "more than 2"},
      {"overlap", Framed("{" + good + "," + Entry("b", "F32", "[2]", "[4,12]") + "}", 12),
       "'b' starts at byte 4"},
      {"same bytes twice", Framed("{" + good + "," + Entry("b", "F32", "[2]", "[0,8]") + "}", 8),
       "starts at byte 0"},
      {"gap", Framed("{" + Entry("a", "F32", "[2]", "[4,12]") + "}", 12), "starts at byte 4"},
      {"bytes left over", Framed("{" + good + "}", 9), "end at byte 8"},
      {"metadata not of strings", Framed("{\"__metadata__\":{\"a\":1}}", 0), "a number"},
      {"unknown field", Framed("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"x\":\"y\"}}", 0),
       "a string"},
      {"empty name", Framed("{" + Entry("", "F32", "[2]", "[0,8]") + "}", 8), "name of 0 bytes"},
      {"endless name", Framed("{" + Entry(std::string(2000, 'n'), "F32", "[2]", "[0,8]") + "}", 8),
       "name of 2000 bytes"},
  };
  const TemporaryFolder folder;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::string path = folder.File("hostile.safetensors");
    WriteRaw(path, c.bytes);
    const absl::StatusOr<SafetensorsReader> got = SafetensorsReader::Open(path);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(got.status().message()), testing::HasSubstr(c.want));
    EXPECT_THAT(std::string(got.status().message()), testing::HasSubstr("hostile.safetensors"));
  }
}

TEST(SafetensorsReaderTest, RefusesMoreThanItsLimits) {
  const TemporaryFolder folder;
  const std::string path = folder.File("many.safetensors");
  std::string json = "{";
  for (int i = 0; i < 5; ++i) {
    json += Entry("t" + std::to_string(i), "F32", "[0]", "[0,0]") + (i < 4 ? "," : "}");
  }
  WriteRaw(path, Framed(json, 0));
  EXPECT_TRUE(SafetensorsReader::Open(path, {.tensors = 5}).ok());
  EXPECT_FALSE(SafetensorsReader::Open(path, {.tensors = 3}).ok());
  EXPECT_FALSE(SafetensorsReader::Open(path, {.header_bytes = 16}).ok());
}

TEST(SafetensorsReaderTest, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(SafetensorsReader::Open(folder.File("missing")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(SafetensorsReader::Open(folder.File("")).ok());
}

TEST(SafetensorsTest, ReadsBackWhatWasWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.File("round.safetensors");
  std::vector<float> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0.5F);
  const std::array<uint16_t, 3> halves = {1, 2, 3};
  const std::vector<TensorBytes> tensors = {
      {{"z.weight", DType::kF32, {10, 100}}, std::as_bytes(std::span(numbers))},
      {{"scalar", DType::kF32, {}}, std::as_bytes(std::span(numbers).first(1))},
      {{"none", DType::kF32, {0, 7}}, {}},
      {{"half", DType::kBF16, {3}}, std::as_bytes(std::span(halves))},
      {{"quoted \"name\"", DType::kF32, {1}}, std::as_bytes(std::span(numbers).last(1))},
  };
  const Metadata metadata = {{"format", "pt"}, {"step", "12"}};
  ASSERT_TRUE(WriteSafetensors(path, tensors, metadata).ok());
  EXPECT_EQ(folder.Entries(), 1u) << "a temporary file stayed behind";

  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->metadata(), metadata);
  ASSERT_EQ(reader->tensors().size(), tensors.size());
  for (const TensorBytes& tensor : tensors) {
    SCOPED_TRACE(tensor.spec.name);
    const TensorInfo& info = reader->tensors().at(tensor.spec.name);
    EXPECT_EQ(info.dtype, tensor.spec.dtype);
    EXPECT_EQ(info.shape, tensor.spec.shape);
    std::vector<std::byte> bytes(info.bytes());
    ASSERT_TRUE(reader->Read(tensor.spec.name, 0, bytes).ok());
    EXPECT_TRUE(std::ranges::equal(bytes, tensor.bytes));
  }
  std::vector<std::byte> piece(8);
  ASSERT_TRUE(reader->Read("z.weight", 4, piece).ok());
  EXPECT_EQ(std::memcmp(piece.data(), &numbers[1], 8), 0);
  EXPECT_EQ(reader->Read("z.weight", 3996, piece).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(reader->Read("z.weight", ~uint64_t{0}, piece).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(reader->Read("absent", 0, piece).code(), absl::StatusCode::kNotFound);
}

TEST(SafetensorsReaderTest, NoticesAFileThatShrinks) {
  const TemporaryFolder folder;
  const std::string path = folder.File("shrinks.safetensors");
  const std::vector<std::byte> data(4096);
  ASSERT_TRUE(WriteSafetensors(path, {{{"a", DType::kU8, {4096}}, data}}, {}).ok());
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok());
  std::filesystem::resize_file(path, 512);
  std::vector<std::byte> bytes(4096);
  EXPECT_EQ(reader->Read("a", 0, bytes).code(), absl::StatusCode::kDataLoss);
}

TEST(SafetensorsWriterTest, LeavesThePreviousFileUntilCommitted) {
  const TemporaryFolder folder;
  const std::string path = folder.File("kept.safetensors");
  const std::array<std::byte, 2> old_bytes = {std::byte{1}, std::byte{2}};
  ASSERT_TRUE(WriteSafetensors(path, {{{"a", DType::kU8, {2}}, old_bytes}}, {}).ok());
  {
    absl::StatusOr<SafetensorsWriter> writer =
        SafetensorsWriter::Create(path, {{"b", DType::kU8, {4}}}, {});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Append(old_bytes).ok());
    EXPECT_EQ(writer->Commit().code(), absl::StatusCode::kFailedPrecondition);
    const std::array<std::byte, 3> too_many{};
    EXPECT_EQ(writer->Append(too_many).code(), absl::StatusCode::kOutOfRange);
  }
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader->tensors().contains("a"));
  EXPECT_EQ(folder.Entries(), 1u) << "a temporary file stayed behind";
}

TEST(SafetensorsWriterTest, RefusesNamesAndShapesItCouldNotReadBack) {
  const TemporaryFolder folder;
  const std::string path = folder.File("x");
  EXPECT_FALSE(SafetensorsWriter::Create(path, {{"", DType::kU8, {1}}}, {}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(path, {{"__metadata__", DType::kU8, {1}}}, {}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(path, {{"a", DType::kU8, {-1}}}, {}).ok());
  EXPECT_FALSE(
      SafetensorsWriter::Create(path, {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}, {}).ok());
  EXPECT_EQ(folder.Entries(), 0u);
}

TEST(SafetensorsWriterTest, SaysWhereItCannotWrite) {
  const absl::Status status = WriteSafetensors("/nonexistent-folder/x", {}, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/nonexistent-folder/x"));
}

}  // namespace
}  // namespace tundish::weights
