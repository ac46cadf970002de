#pragma once

#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "server/api/file_source.h"
#include "server/jobs/core.h"

namespace tundish::api {

/// A file of the artifact root as an agent sees it. Asks the nodes in turn until one has it, then
/// stays with that one. The core outlives it.
class AgentFile : public FileSource, public std::enable_shared_from_this<AgentFile> {
 public:
  AgentFile(boost::asio::any_io_executor loop, jobs::Core& core, std::vector<std::string> nodes,
            std::string root, std::string path)
      : loop_(std::move(loop)),
        core_(core),
        nodes_(std::move(nodes)),
        root_(std::move(root)),
        path_(std::move(path)) {}

  void Read(uint64_t offset, size_t most, Done done) override;

 private:
  void Ask(uint64_t offset, size_t most, Done done);

  const boost::asio::any_io_executor loop_;
  jobs::Core& core_;
  // On the loop only.
  std::vector<std::string> nodes_;
  bool found_ = false;
  const std::string root_;
  const std::string path_;
};

}  // namespace tundish::api
