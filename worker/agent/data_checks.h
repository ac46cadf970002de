#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/process/process.h"
#include "tundish/v1/node.pb.h"

namespace tundish::agent {

/// Runs data checks in processes of their own, since they feed unknown bytes to image libraries: a
/// crash is a sentence in the result, not the end of the agent. The process reads a JobSpec from
/// standard input and writes a CheckDataResult to standard output. Destroying this kills what runs.
/// Runs on one single-threaded io_context.
class DataChecks {
 public:
  struct Options {
    /// What is run: program and arguments, e.g. {"…/tundish-agent", "check-data"}.
    std::vector<std::string> command;
    /// Folder for the files of running checks.
    std::filesystem::path folder;
    std::chrono::milliseconds limit{std::chrono::minutes(30)};
    /// Checks beyond this number wait for their turn.
    size_t parallel = 2;
  };
  using OnResult = std::function<void(v1::TaskResult)>;

  /// `on_result` runs once per task.
  DataChecks(boost::asio::io_context& io, Options options, OnResult on_result);
  ~DataChecks();

  /// Checks `task.check_data()`. A task that waits or runs already is not run twice.
  void Run(v1::RunTask task);

 private:
  struct Check;

  void StartNext();
  void Start(v1::RunTask task);
  void OnExit(const std::string& task_id, const process::Exit& exit);
  void Finish(const v1::RunTask& task, v1::TaskResult result);
  std::filesystem::path FileOf(const std::string& task_id, const char* suffix) const;
  v1::TaskResult ReadResult(const Check& check, const process::Exit& exit) const;

  boost::asio::io_context& io_;
  const Options options_;
  OnResult on_result_;
  std::deque<v1::RunTask> waiting_;
  std::map<std::string, std::unique_ptr<Check>> running_;
};

}  // namespace tundish::agent
