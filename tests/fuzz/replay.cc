// Runs a fuzz target over files without a fuzzing engine: replay FILE-OR-FOLDER… Every file is
// given whole, cut at several places, and with single bytes changed.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void Give(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

void GiveVariants(const std::string& bytes) {
  constexpr size_t kCuts = 16;
  constexpr size_t kChanges = 24;
  Give(bytes);
  for (size_t i = 0; i < kCuts; ++i) Give(bytes.substr(0, bytes.size() * i / kCuts));
  for (size_t i = 0; i < kChanges && !bytes.empty(); ++i) {
    // Headers matter most, so half of the changes hit the first bytes.
    const size_t at = i % 2 == 0 ? i % bytes.size() : bytes.size() * i / kChanges;
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ (0x11 << (i % 4)));
    Give(changed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    std::error_code error;
    fs::recursive_directory_iterator it(argv[i], error);
    if (error) {
      std::fprintf(stderr, "cannot read folder %s\n", argv[i]);
      return 2;
    }
    for (const fs::directory_entry& entry : it) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      GiveVariants({std::istreambuf_iterator<char>(file), {}});
      ++files;
    }
  }
  std::printf("%zu files\n", files);
  return files > 0 ? 0 : 1;
}
