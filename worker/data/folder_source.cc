#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include <absl/status/status.h>
#include <fmt/core.h>

#include "worker/data/data_roots.h"
#include "worker/data/source.h"

namespace tundish::data {
namespace {

namespace fs = std::filesystem;

struct FolderContents {
  std::vector<std::string> folders;
  std::vector<std::string> files;
};

bool IsHidden(const std::string& name) {
  // The two that file managers of other systems leave behind without a leading dot.
  return name.starts_with('.') || name == "Thumbs.db" || name == "desktop.ini";
}

absl::Status CannotRead(const fs::path& path, const std::error_code& error) {
  return absl::NotFoundError(
      fmt::format("cannot read folder '{}': {}", path.string(), error.message()));
}

absl::StatusOr<FolderContents> ReadFolder(const fs::path& path) {
  FolderContents contents;
  std::error_code error;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    if (IsHidden(name)) continue;
    if (!IsPlainUtf8(name) || name.size() > kMaxNameBytes) {
      return absl::InvalidArgumentError(fmt::format(
          "a name in folder '{}' is not valid UTF-8; rename it so that reports can name it",
          path.string()));
    }
    std::error_code
        ignored;  // A dangling link is neither; decoding will say what is wrong with it.
    auto& list = it->is_directory(ignored) ? contents.folders : contents.files;
    list.push_back(std::move(name));
  }
  if (error) return CannotRead(path, error);
  std::ranges::sort(contents.folders);
  std::ranges::sort(contents.files);
  return contents;
}

/// Adds every file below root/prefix, also in folders of folders.
absl::Status AddImages(const fs::path& root, const std::string& prefix, const Entry& like,
                       Listing& listing) {
  const absl::StatusOr<FolderContents> contents = ReadFolder(root / prefix);
  if (!contents.ok()) return contents.status();
  for (const std::string& file : contents->files) {
    if (listing.entries.size() == kMaxSamples) {
      return absl::InvalidArgumentError(
          fmt::format("folder '{}' holds more than {} images", root.string(), kMaxSamples));
    }
    Entry entry = like;
    entry.name = prefix + "/" + file;
    entry.file = (root / entry.name).string();
    if (entry.name.size() > kMaxPathBytes) {
      return absl::InvalidArgumentError(fmt::format("path '{}…' is longer than {} bytes",
                                                    entry.name.substr(0, 80), kMaxPathBytes));
    }
    listing.entries.push_back(std::move(entry));
  }
  for (const std::string& folder : contents->folders) {
    const std::string below = prefix + "/" + folder;
    std::error_code ignored;
    if (fs::is_symlink(root / below, ignored)) {  // Might lead back up, for ever.
      listing.warnings.push_back(fmt::format("link to a folder '{}' is not followed", below));
      continue;
    }
    if (absl::Status added = AddImages(root, below, like, listing); !added.ok()) return added;
  }
  return absl::OkStatus();
}

/// Adds the classes in root/prefix (prefix "" or "train" or "val").
absl::Status AddClasses(const fs::path& root, const std::string& prefix,
                        const FolderContents& contents, std::optional<Split> split,
                        Listing& listing) {
  if (contents.folders.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "folder '{}' holds {} files and no class folder; expected folder/<class>/<image>",
        (root / prefix).string(), contents.files.size()));
  }
  if (!contents.files.empty()) {
    listing.warnings.push_back(fmt::format("{} files beside the class folders of '{}' are not used",
                                           contents.files.size(), (root / prefix).string()));
  }
  for (const std::string& name : contents.folders) {
    listing.class_folders.push_back(name);
    const size_t before = listing.entries.size();
    const Entry like = {.label = name, .split = split};
    const std::string path = prefix.empty() ? name : prefix + "/" + name;
    if (absl::Status added = AddImages(root, path, like, listing); !added.ok()) return added;
    if (listing.entries.size() == before) {
      return absl::InvalidArgumentError(fmt::format(
          "class folder '{}' holds no image; put images in or remove it", (root / path).string()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Listing> ListFolder(const std::string& folder) {
  const fs::path root(folder);
  std::error_code error;
  // Files are opened beneath the roots one by one; this also keeps names outside them from view.
  const absl::StatusOr<int> admitted = DataRoots::OfProcess().Open(folder, O_DIRECTORY);
  if (admitted.ok()) {
    close(*admitted);
  } else if (absl::IsPermissionDenied(admitted.status())) {
    return absl::PermissionDeniedError(
        fmt::format("data.folder '{}' {}", folder, std::string(admitted.status().message())));
  }
  if (!fs::is_directory(root, error)) {
    return absl::NotFoundError(
        fmt::format("data.folder '{}' {}; expected a folder with one sub-folder per class", folder,
                    fs::exists(root, error) ? "is not a folder" : "does not exist on this host"));
  }
  absl::StatusOr<FolderContents> contents = ReadFolder(root);
  if (!contents.ok()) return contents.status();
  Listing listing;
  const auto holds = [&](const char* name) {
    return std::ranges::find(contents->folders, name) != contents->folders.end();
  };
  if (!holds("train") || !holds("val")) {
    absl::Status added = AddClasses(root, "", *contents, std::nullopt, listing);
    if (!added.ok()) return added;
    return listing;
  }
  if (contents->folders.size() != 2) {
    return absl::InvalidArgumentError(fmt::format(
        "data.folder '{}' holds train and val beside {} other sub-folders; expected exactly train "
        "and val, or one sub-folder per class",
        folder, contents->folders.size() - 2));
  }
  for (const auto& [name, split] :
       {std::pair{"train", Split::kTrain}, std::pair{"val", Split::kValidation}}) {
    contents = ReadFolder(root / name);
    if (!contents.ok()) return contents.status();
    absl::Status added = AddClasses(root, name, *contents, split, listing);
    if (!added.ok()) return added;
  }
  return listing;
}

}  // namespace tundish::data
