#include "worker/agent/state_dir.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace tundish::agent {

namespace fs = std::filesystem;
namespace {

constexpr std::string_view kRecord = "record.pb";

absl::Status Failed(std::string_view what, const fs::path& path, int error) {
  return absl::FailedPreconditionError(fmt::format("cannot {} '{}': {}", what, path.string(),
                                                   std::generic_category().message(error)));
}

absl::Status MakePrivateFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Failed("make the folder", folder, errno);
  }
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0) return Failed("use the folder", folder, errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid()) {
    return absl::FailedPreconditionError(fmt::format(
        "'{}' is not a folder of this user; choose another --state-dir", folder.string()));
  }
  if (chmod(folder.c_str(), 0700) != 0) return Failed("make private", folder, errno);
  return absl::OkStatus();
}

bool IsUtf8Continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// Length of the UTF-8 sequence at `text[0]`, 0 if there is none.
size_t Utf8Length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length == 0 || length > text.size()) return 0;
  if (!std::ranges::all_of(text.substr(1, length - 1), IsUtf8Continuation)) return 0;
  const auto second = length > 1 ? static_cast<unsigned char>(text[1]) : 0;
  // Over-long forms, surrogates, and beyond U+10FFFF (RFC 3629).
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

}  // namespace

const std::string& ProcessId(const v1::WorkerRecord& record) {
  return record.process_id().empty() ? record.start().worker_id() : record.process_id();
}

bool IsFileId(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::ranges::all_of(id, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-';
  });
}

std::string ReadTail(const fs::path& file, size_t bytes) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) return "";
  const auto size = static_cast<size_t>(stream.tellg());
  const size_t length = std::min(size, bytes);
  stream.seekg(static_cast<std::streamoff>(size - length));
  std::string tail(length, '\0');
  stream.read(tail.data(), static_cast<std::streamsize>(length));
  tail.resize(static_cast<size_t>(stream.gcount()));
  if (length < size) {
    const size_t line = tail.find('\n');
    if (line != std::string::npos && line + 1 < tail.size()) tail.erase(0, line + 1);
  }
  for (size_t i = 0; i < tail.size();) {
    const size_t sequence = Utf8Length(std::string_view(tail).substr(i));
    if (sequence == 0) tail[i] = '?';
    i += std::max<size_t>(sequence, 1);
  }
  return tail;
}

absl::StatusOr<std::unique_ptr<StateDir>> StateDir::Open(const fs::path& given) {
  std::error_code error;
  const fs::path folder = fs::absolute(given, error).lexically_normal();
  if (error) return Failed("use the folder", given, error.value());
  if ((folder / "rank.sock").string().size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::FailedPreconditionError(
        fmt::format("the path '{}' is too long for a Unix socket below it ({} bytes at most); "
                    "choose a shorter --state-dir",
                    folder.string(), sizeof(sockaddr_un::sun_path) - sizeof("/rank.sock")));
  }
  for (const fs::path& each : {folder, folder / "workers", folder / "tasks"}) {
    if (absl::Status made = MakePrivateFolder(each); !made.ok()) return made;
  }
  const fs::path lock_file = folder / "lock";
  const int lock = open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return Failed("open", lock_file, errno);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return absl::FailedPreconditionError(
        fmt::format("another agent uses the state directory '{}'; stop it or choose another "
                    "--state-dir",
                    folder.string()));
  }
  for (const auto& left : fs::directory_iterator(folder / "tasks", error)) {
    fs::remove(left.path(), error);  // Of an agent that was killed; its checks died with it.
  }
  return std::unique_ptr<StateDir>(new StateDir(folder, lock));
}

StateDir::StateDir(fs::path folder, int lock) : folder_(std::move(folder)), lock_(lock) {}

StateDir::~StateDir() {
  close(lock_);
}

fs::path StateDir::log_of(std::string_view process_id) const {
  return folder_ / "workers" / process_id / "rank.log";
}

absl::Status StateDir::AddWorker(std::string_view worker_id) {
  if (!IsFileId(worker_id)) {
    return absl::InvalidArgumentError(
        fmt::format("worker id '{}' is not 1 to 64 of [A-Za-z0-9_-]", worker_id));
  }
  return MakePrivateFolder(folder_ / "workers" / worker_id);
}

absl::Status StateDir::WriteRecord(const v1::WorkerRecord& record) {
  const fs::path folder = folder_ / "workers" / ProcessId(record);
  const fs::path temporary = folder / "record.new";
  const std::string bytes = record.SerializeAsString();
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return Failed("write", temporary, errno);
  const ssize_t written = write(file, bytes.data(), bytes.size());
  const int error = written < 0 ? errno : ENOSPC;
  close(file);
  if (written != static_cast<ssize_t>(bytes.size())) return Failed("write", temporary, error);
  if (rename(temporary.c_str(), (folder / kRecord).c_str()) != 0) {
    return Failed("write", folder / kRecord, errno);
  }
  return absl::OkStatus();
}

void StateDir::DropRecord(std::string_view worker_id) {
  std::error_code ignored;  // What is left is tried again at the next start.
  fs::remove(folder_ / "workers" / worker_id / kRecord, ignored);
  std::vector<fs::path> ended;
  for (const auto& entry : fs::directory_iterator(folder_ / "workers", ignored)) {
    if (!fs::exists(entry.path() / kRecord, ignored)) ended.push_back(entry.path());
  }
  if (ended.size() <= kLogsKept) return;
  std::ranges::sort(ended, {},
                    [&](const fs::path& folder) { return fs::last_write_time(folder, ignored); });
  ended.resize(ended.size() - kLogsKept);
  for (const fs::path& folder : ended) fs::remove_all(folder, ignored);
}

absl::StatusOr<std::vector<v1::WorkerRecord>> StateDir::ReadRecords() const {
  std::vector<v1::WorkerRecord> records;
  std::error_code error;
  fs::directory_iterator entry(folder_ / "workers", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path file = entry->path() / kRecord;
    std::ifstream stream(file, std::ios::binary);
    if (!stream.is_open()) {
      if (errno == ENOENT) continue;
      return Failed("read", file, errno);
    }
    const std::string id = entry->path().filename().string();
    v1::WorkerRecord record;
    if (!record.ParseFromIstream(&stream) || ProcessId(record) != id) {
      spdlog::error("event=worker_record_unreadable file={}", file.string());
      record.Clear();
      record.mutable_start()->set_worker_id(id);
    }
    records.push_back(std::move(record));
  }
  if (error) return Failed("read the folder", folder_ / "workers", error.value());
  return records;
}

}  // namespace tundish::agent
