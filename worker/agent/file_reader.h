#pragma once

#include <functional>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>

#include "tundish/v1/node.pb.h"

namespace tundish::agent {

/// The answer to `order`. Blocks for as long as the file system does. At most 1 MiB is read.
v1::FileChunk ReadPiece(const v1::ReadFile& order);

/// Reads files for the coordinator on a thread of its own, so that a slow file system delays no
/// heartbeat.
class FileReader {
 public:
  using Answer = std::function<void(v1::FileChunk)>;

  /// `answer` is called on `loop`, and not after Close().
  FileReader(boost::asio::any_io_executor loop, Answer answer);
  /// Close().
  ~FileReader();

  void Read(v1::ReadFile order);
  /// Ends the thread after the read under way.
  void Close();

 private:
  const boost::asio::any_io_executor loop_;
  const Answer answer_;
  boost::asio::thread_pool disk_{1};
};

}  // namespace tundish::agent
