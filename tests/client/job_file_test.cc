#include "client/cli/job_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace tundish::client {
namespace {

TEST(LoadJobFileTest, TakesRelativePathsFromTheFilesFolder) {
  std::string pattern = testing::TempDir() + "jobfileXXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  struct Case {
    const char* yaml;
    std::string folder, manifest, weights;
  };
  const Case cases[] = {
      {"data: {folder: cells}\nmodel: {weights: last/model.safetensors}", folder + "/cells", "",
       folder + "/last/model.safetensors"},
      {"data: {manifest: ../list.csv}", "", testing::TempDir() + "list.csv", ""},
      {"data: {folder: /srv/./cells}", "/srv/cells", "", ""},
      {"data: {folder: \"\"}", "", "", ""},
      {"name: a", "", "", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.yaml);
    std::ofstream(folder + "/job.yaml") << c.yaml;
    v1::JobSpec spec;
    const absl::Status loaded = LoadJobFile(folder + "/job.yaml", &spec);
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_EQ(spec.data().folder(), c.folder);
    EXPECT_EQ(spec.data().manifest(), c.manifest);
    EXPECT_EQ(spec.model().weights(), c.weights);
    EXPECT_EQ(spec.has_model(), !c.weights.empty());
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tundish::client
