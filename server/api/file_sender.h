#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "runtime/base/sha256.h"
#include "runtime/rpc/server_stream.h"
#include "runtime/rpc/status.h"
#include "server/api/file_source.h"

namespace tundish::api {

/// Sends one file as messages with `chunk`, `total_bytes` and, in the last one, `sha256` of the
/// whole file; reads on as the peer takes it. Everything runs on one executor, which may block.
/// Kept alive by its callbacks.
template <class Response>
class FileSender : public std::enable_shared_from_this<FileSender<Response>> {
 public:
  using Stream = rpc::ServerStream<Response>;
  /// Read ahead of the peer.
  static constexpr size_t kBoundBytes = 2 << 20;
  static constexpr size_t kChunkBytes = 256 << 10;

  /// Sends `source` from byte `offset` and ends the stream: OK, an error of the source, OutOfRange
  /// for an offset past the end, DataLoss if the file changes its size meanwhile. What lies before
  /// `offset` is read too: the hash is the whole file's.
  static void Start(boost::asio::any_io_executor executor, std::shared_ptr<Stream> stream,
                    std::shared_ptr<FileSource> source, uint64_t offset) {
    std::shared_ptr<FileSender> sender(
        new FileSender(std::move(executor), stream, std::move(source), offset));
    stream->Listen({.on_drained = [sender] { sender->Pump(); },
                    .on_done = [sender] { sender->ended_ = true; }});
    sender->Pump();
  }

 private:
  FileSender(boost::asio::any_io_executor executor, std::shared_ptr<Stream> stream,
             std::shared_ptr<FileSource> source, uint64_t offset)
      : executor_(std::move(executor)),
        stream_(std::move(stream)),
        source_(std::move(source)),
        from_(offset) {}

  void Pump() {
    if (ended_ || reading_ || stream_->queued_bytes() >= kBoundBytes) return;
    reading_ = true;
    source_->Read(read_, kChunkBytes,
                  [self = this->shared_from_this()](absl::StatusOr<FilePiece> piece) {
                    boost::asio::post(self->executor_, [self, piece = std::move(piece)]() mutable {
                      self->OnPiece(std::move(piece));
                    });
                  });
  }

  void OnPiece(absl::StatusOr<FilePiece> piece) {
    reading_ = false;
    if (ended_) return;
    if (!piece.ok()) return End(rpc::ToGrpc(piece.status()));
    if (started_ && piece->file_bytes != size_) {
      return End({grpc::StatusCode::DATA_LOSS,
                  fmt::format("the file had {} bytes and has {} now", size_, piece->file_bytes)});
    }
    started_ = true;
    size_ = piece->file_bytes;
    if (from_ > size_) {
      return End({grpc::StatusCode::OUT_OF_RANGE,
                  fmt::format("offset {} is past the end: the file has {} bytes", from_, size_)});
    }
    hash_.Add(piece->bytes);
    const uint64_t begin = read_;
    read_ += piece->bytes.size();
    const bool last = read_ == size_;
    if (read_ <= from_ && !last) return Pump();  // only hashed
    Response response;
    response.set_total_bytes(size_);
    if (begin < from_) piece->bytes.erase(0, std::min<size_t>(from_ - begin, piece->bytes.size()));
    response.set_chunk(std::move(piece->bytes));
    if (last) response.set_sha256(ToHex(hash_.Finish()));
    if (!stream_->SendAnyway(std::move(response))) ended_ = true;  // the peer is gone
    if (last) return End(grpc::Status::OK);
    Pump();
  }

  void End(grpc::Status status) {
    ended_ = true;
    stream_->End(std::move(status));
  }

  const boost::asio::any_io_executor executor_;
  const std::shared_ptr<Stream> stream_;
  const std::shared_ptr<FileSource> source_;
  const uint64_t from_;
  Sha256 hash_;
  uint64_t read_ = 0;
  uint64_t size_ = 0;
  bool started_ = false;
  bool reading_ = false;
  bool ended_ = false;
};

}  // namespace tundish::api
