// Every job file under examples/ is one that the coordinator would accept.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "runtime/config/message_config.h"
#include "server/spec/resolve.h"
#include "tundish/v1/job.pb.h"

namespace tundish {
namespace {

namespace fs = std::filesystem;

TEST(ExamplesTest, EveryJobFileIsValid) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(TUNDISH_EXAMPLES)) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++files;
    v1::JobSpec spec;
    const absl::Status read = MessageFromFile(entry.path().string(), &spec);
    ASSERT_TRUE(read.ok()) << read;
    // The client does this before it submits.
    v1::DataSpec& data = *spec.mutable_data();
    if (data.has_folder()) data.set_folder((entry.path().parent_path() / data.folder()).string());
    if (data.has_manifest()) {
      data.set_manifest((entry.path().parent_path() / data.manifest()).string());
    }
    const absl::StatusOr<v1::JobSpec> resolved = spec::ResolveSpec(spec);
    EXPECT_TRUE(resolved.ok()) << resolved.status();
  }
  EXPECT_GE(files, 2);
}

}  // namespace
}  // namespace tundish
