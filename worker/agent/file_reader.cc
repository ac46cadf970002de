#include "worker/agent/file_reader.h"

#include <algorithm>
#include <cerrno>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "runtime/base/open_beneath.h"

namespace tundish::agent {
namespace {

v1::FileChunk Failed(v1::FileChunk chunk, const absl::Status& status) {
  chunk.clear_data();
  chunk.set_error(std::string(status.message()));
  chunk.set_code(static_cast<uint32_t>(status.code()));
  return chunk;
}

}  // namespace

v1::FileChunk ReadPiece(const v1::ReadFile& order) {
  constexpr uint32_t kMostBytes = 1 << 20;
  v1::FileChunk chunk;
  chunk.set_read_id(order.read_id());
  chunk.set_offset(order.offset());
  if (order.bytes() > kMostBytes) {
    return Failed(chunk,
                  absl::InvalidArgumentError(fmt::format("{} bytes were asked for; the most is {}",
                                                         order.bytes(), kMostBytes)));
  }
  const absl::StatusOr<File> file = OpenBeneath(order.root(), order.path());
  if (!file.ok()) return Failed(chunk, file.status());
  struct stat info {};
  if (fstat(file->descriptor(), &info) != 0) {
    return Failed(chunk, absl::UnavailableError("the file's size cannot be read"));
  }
  const auto total = static_cast<uint64_t>(info.st_size);
  chunk.set_total_bytes(total);
  std::string& data = *chunk.mutable_data();
  if (order.offset() < total)
    data.resize(std::min<uint64_t>(order.bytes(), total - order.offset()));
  for (size_t filled = 0; filled < data.size();) {
    const ssize_t got = pread(file->descriptor(), data.data() + filled, data.size() - filled,
                              static_cast<off_t>(order.offset() + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return Failed(chunk,
                    absl::DataLossError(fmt::format("'{}' ended or failed at byte {} of {}",
                                                    order.path(), order.offset() + filled, total)));
    }
    filled += static_cast<size_t>(got);
  }
  return chunk;
}

FileReader::FileReader(boost::asio::any_io_executor loop, Answer answer)
    : loop_(std::move(loop)), answer_(std::move(answer)) {}

FileReader::~FileReader() {
  Close();
}

void FileReader::Read(v1::ReadFile order) {
  boost::asio::post(disk_, [this, order = std::move(order)] {
    boost::asio::post(loop_, [this, chunk = ReadPiece(order)] { answer_(chunk); });
  });
}

void FileReader::Close() {
  disk_.stop();
  disk_.join();
}

}  // namespace tundish::agent
