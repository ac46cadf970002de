#include "server/store/store.h"

#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

#include "server/store/reader.h"
#include "server/store/schema.h"
#include "server/store/writer.h"

namespace tundish::store {
namespace {

/// Keeps a second coordinator out for as long as it lives; the kernel lets go when the process
/// dies.
class FileLock {
 public:
  static absl::StatusOr<FileLock> Take(const std::filesystem::path& path) {
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) {
      return absl::UnavailableError(fmt::format(
          "{}: {}", path.string(), std::error_code(errno, std::generic_category()).message()));
    }
    FileLock lock(descriptor);
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      return absl::FailedPreconditionError(
          fmt::format("{} is locked: another tundishd uses this database", path.string()));
    }
    return lock;
  }

  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

absl::Status StoreClosed() {
  return absl::FailedPreconditionError("the store is closed");
}

}  // namespace

struct Store::Parts {
  const std::filesystem::path path;
  // In this order: the connections end before the lock is let go.
  std::optional<FileLock> lock;  // Empty when closed.
  std::unique_ptr<Writer> writer;
  std::unique_ptr<Reader> reader;
};

Store::Store(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Store::~Store() {
  Close();
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::filesystem::path& path,
                                                   const Options& options) {
  auto lock = FileLock::Take(path.string() + ".lock");
  if (!lock.ok()) return lock.status();
  auto database = OpenChecked(path);
  if (!database.ok()) return database.status();
  if (options.max_pages > 0) {
    absl::Status limited =
        database->Execute(fmt::format("PRAGMA max_page_count = {}", options.max_pages));
    if (!limited.ok()) return limited;
  }
  auto reading = Database::Open(path, false);
  if (!reading.ok()) return reading.status();
  if (absl::Status status = reading->Execute("PRAGMA query_only = 1"); !status.ok()) return status;
  auto writer = Writer::Start(*std::move(database), options.queue_bytes);
  if (!writer.ok()) return writer.status();
  return std::unique_ptr<Store>(new Store(std::unique_ptr<Parts>(
      new Parts{path, *std::move(lock), *std::move(writer), Reader::Start(*std::move(reading))})));
}

void Store::Commit(WriteBatch batch, Done done) {
  parts_->writer->Commit(std::move(batch), std::move(done));
}

void Store::PruneUpdates(PruneRequest request, std::function<void(Pruned)> done) {
  parts_->writer->WhenIdle([request = std::move(request), done = std::move(done)](Database* open) {
    done(open == nullptr ? Pruned(StoreClosed()) : Prune(*open, request));
  });
}

void Store::RemoveJob(std::string job_id, Done done) {
  parts_->writer->WhenIdle([job_id = std::move(job_id), done = std::move(done)](Database* open) {
    done(open == nullptr ? StoreClosed() : ForgetJob(*open, job_id));
  });
}

void Store::RemoveAudit(std::chrono::system_clock::time_point before, Done done) {
  parts_->writer->WhenIdle([before, done = std::move(done)](Database* open) {
    done(open == nullptr ? StoreClosed() : PruneAudit(*open, before));
  });
}

absl::Status Store::BackUp(const std::filesystem::path& file) const {
  std::error_code error;
  if (std::filesystem::exists(file, error)) {
    return absl::AlreadyExistsError(fmt::format("{} is there already", file.string()));
  }
  auto database = Database::Open(parts_->path, false);
  if (!database.ok()) return database.status();
  auto copy = database->Prepare("VACUUM INTO ?");
  if (!copy.ok()) return copy.status();
  absl::Status status = copy->Bind(file.native()).Run();
  if (!status.ok()) std::filesystem::remove(file, error);
  return status;
}

void Store::Flush() {
  parts_->writer->Flush();
}

void Store::Close() {
  // The writer first: answers to what was committed may still ask for reads.
  parts_->writer->Close();
  parts_->reader->Close();
  parts_->lock.reset();
}

absl::StatusOr<State> Store::LoadState() {
  return parts_->reader->LoadState();
}

Store::Updates Store::ReadUpdates(const std::string& job_id, std::uint32_t after_seq, int limit) {
  return parts_->reader->ReadUpdates(job_id, after_seq, limit);
}

void Store::ReadUpdatesAsync(std::string job_id, std::uint32_t after_seq, int limit,
                             UpdatesDone done) {
  parts_->reader->ReadUpdatesAsync(std::move(job_id), after_seq, limit, std::move(done));
}

}  // namespace tundish::store
