#include "server/jobs/committer.h"

#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

namespace tundish::jobs {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::seconds kRetryAfter{1};

absl::Status GoingDown() {
  return absl::UnavailableError("the coordinator is going down; try again");
}

}  // namespace

Committer::Committer(asio::any_io_executor loop, store::Store& store,
                     std::function<void(std::chrono::duration<double>)> on_commit)
    : loop_(loop), store_(store), on_commit_(std::move(on_commit)), retry_(loop) {}

Committer::~Committer() = default;

void Committer::Commit(store::WriteBatch batch, Effect effect) {
  if (closed_) {
    asio::post(loop_, [effect = std::move(effect)] { effect(GoingDown()); });
    return;
  }
  open_.Append(std::move(batch));
  open_effects_.push_back(std::move(effect));
  if (!busy_) Advance();
}

void Committer::Advance() {
  busy_ = true;
  sent_ = std::exchange(open_, {});
  sent_effects_ = std::exchange(open_effects_, {});
  sent_at_ = std::chrono::steady_clock::now();
  if (!sent_.empty()) {
    SendBatch();
    return;
  }
  asio::post(loop_, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired() && !closed_) RunEffects(absl::OkStatus());
  });
}

void Committer::SendBatch() {
  store_.Commit(sent_,
                [this, loop = loop_, alive = std::weak_ptr<bool>(alive_)](absl::Status status) {
                  asio::post(loop, [this, alive, status = std::move(status)] {
                    if (!alive.expired() && !closed_) OnDone(status);
                  });
                });
}

void Committer::OnDone(const absl::Status& status) {
  if (status.ok()) {
    if (!health_.ok()) spdlog::info("event=store_works_again");
    if (on_commit_) on_commit_(std::chrono::steady_clock::now() - sent_at_);
    health_ = absl::OkStatus();
    RunEffects(status);
    return;
  }
  if (health_.ok()) {
    spdlog::error("event=store_failed status=\"{}\" action=\"nothing leaves until it works again\"",
                  status.ToString());
  }
  health_ = status;
  retry_.expires_after(kRetryAfter);
  retry_.async_wait([this, alive = std::weak_ptr<bool>(alive_)](boost::system::error_code error) {
    if (!error && !alive.expired() && !closed_) SendBatch();
  });
}

void Committer::RunEffects(const absl::Status& status) {
  sent_ = {};
  // Effects may commit: what they add belongs to the next batch.
  for (const Effect& effect : std::exchange(sent_effects_, {})) effect(status);
  if (closed_) return;
  busy_ = false;
  if (!open_effects_.empty()) Advance();
}

asio::awaitable<absl::Status> Committer::Settled() {
  return asio::async_initiate<const asio::use_awaitable_t<>, void(absl::Status)>(
      [this](auto handler) {
        // std::function wants a copy; the handler can only be moved.
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        Commit({}, [shared](const absl::Status& status) { std::move (*shared)(status); });
      },
      asio::use_awaitable);
}

void Committer::Close() {
  if (std::exchange(closed_, true)) return;
  retry_.cancel();
  std::vector<Effect> waiting = std::exchange(sent_effects_, {});
  for (Effect& effect : std::exchange(open_effects_, {})) waiting.push_back(std::move(effect));
  for (const Effect& effect : waiting) effect(GoingDown());
}

}  // namespace tundish::jobs
