#include "runtime/rpc/task_scope.h"

#include <chrono>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "runtime/base/check.h"

namespace tundish::rpc {

namespace asio = boost::asio;

TaskScope::TaskScope(asio::any_io_executor strand) : strand_(strand), idle_(strand) {
  idle_.expires_at(std::chrono::steady_clock::time_point::max());
}

TaskScope::~TaskScope() {
  TUNDISH_CHECK(live_ == 0);
}

void TaskScope::Ended(std::exception_ptr error) {
  if (error) failure_ = std::move(error);
  if (--live_ == 0) idle_.cancel();
}

asio::awaitable<void> TaskScope::Close() {
  stopping_ = true;
  boost::system::error_code woken;
  while (live_ > 0) co_await idle_.async_wait(asio::redirect_error(asio::use_awaitable, woken));
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace tundish::rpc
