#include "server/api/agent_file.h"

#include <algorithm>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace tundish::api {

void AgentFile::Read(uint64_t offset, size_t most, Done done) {
  boost::asio::post(loop_, [self = shared_from_this(), offset, most, done = std::move(done)] {
    self->Ask(offset, most, done);
  });
}

void AgentFile::Ask(uint64_t offset, size_t most, Done done) {
  if (nodes_.empty()) {
    return done(absl::NotFoundError(fmt::format(
        "artifact '{}': neither the coordinator's host nor any agent that is connected has it",
        path_)));
  }
  v1::ReadFile request;
  request.set_root(root_);
  request.set_path(path_);
  request.set_offset(offset);
  request.set_bytes(static_cast<uint32_t>(std::min<size_t>(most, 1 << 20)));
  core_.ReadFile(
      nodes_.front(), std::move(request),
      [self = shared_from_this(), offset, most,
       done = std::move(done)](absl::StatusOr<v1::FileChunk> chunk) {
        if (!chunk.ok() && !self->found_) {
          self->nodes_.erase(self->nodes_.begin());
          return self->Ask(offset, most, done);
        }
        if (!chunk.ok()) return done(chunk.status());
        self->found_ = true;
        const uint64_t total = chunk->total_bytes();
        const uint64_t want = offset < total ? std::min<uint64_t>(most, total - offset) : 0;
        if (chunk->offset() != offset || chunk->data().size() != want) {
          return done(absl::DataLossError(fmt::format(
              "node '{}' sent {} bytes from byte {} on, asked for {} from {}", self->nodes_.front(),
              chunk->data().size(), chunk->offset(), want, offset)));
        }
        done(FilePiece{std::move(*chunk->mutable_data()), total});
      });
}

}  // namespace tundish::api
