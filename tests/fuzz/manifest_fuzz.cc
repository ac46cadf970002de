// Any text is either a list of well-formed entries or one error, as CSV and as JSONL.
#include <cstdint>
#include <string_view>

#include "runtime/base/check.h"
#include "worker/data/source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tundish::data;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& listing :
       {ParseCsvManifest(text, "m.csv", "/base"), ParseJsonlManifest(text, "m.jsonl", "/base")}) {
    if (!listing.ok()) {
      TUNDISH_CHECK(!listing.status().message().empty());
      continue;
    }
    for (const Entry& entry : listing->entries) {
      TUNDISH_CHECK(!entry.name.empty() && !entry.label.empty() && entry.weight > 0);
      TUNDISH_CHECK(IsPlainUtf8(entry.name) && IsPlainUtf8(entry.label));
      TUNDISH_CHECK(entry.line > 0);
    }
  }
  return 0;
}
