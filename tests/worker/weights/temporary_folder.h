#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/base/check.h"

namespace tundish::weights {

/// A folder for one test, removed with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "tundish-weights-XXXXXX";
    TUNDISH_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string File(const std::string& name) const { return path_ / name; }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tundish::weights
