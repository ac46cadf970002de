#pragma once

#include <exception>
#include <utility>  // Boost 1.74's Asio needs it before its own headers.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>

namespace tundish::rpc {

/// Owns the coroutines of one service, so that none outlives what it refers to. Lives on one strand
/// (or one single-threaded io_context); every member is called there.
class TaskScope {
 public:
  explicit TaskScope(boost::asio::any_io_executor strand);
  ~TaskScope();
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;

  /// Starts `task`, a callable returning `asio::awaitable<void>`.
  template <class Task>
  void Spawn(Task task) {
    ++live_;
    boost::asio::co_spawn(strand_, std::move(task),
                          [this](std::exception_ptr error) { Ended(std::move(error)); });
  }

  /// True once Close() was called: long-running tasks look at it and end.
  bool stopping() const { return stopping_; }

  /// Returns when every task has ended; rethrows the last exception that left one.
  boost::asio::awaitable<void> Close();

 private:
  void Ended(std::exception_ptr error);

  boost::asio::any_io_executor strand_;
  boost::asio::steady_timer idle_;  // Never expires; cancelled when the last task ends.
  std::exception_ptr failure_;
  int live_ = 0;
  bool stopping_ = false;
};

}  // namespace tundish::rpc
