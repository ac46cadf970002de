#include "worker/agent/uplink_queue.h"

#include <utility>

namespace tundish::agent {

void UplinkQueue::AddFact(v1::AgentMessage message, TimePoint since) {
  queue_.push_back({.fact = std::move(message), .since = since});
}

void UplinkQueue::AddPassing(v1::AgentMessage message) {
  queue_.push_back({.fact = std::move(message), .passing = true});
}

bool UplinkQueue::AddReport(v1::RankReport report) {
  if (report_bytes_ >= report_bound_bytes_) return false;
  report_bytes_ += report.ByteSizeLong();
  queue_.push_back({.report = std::move(report)});
  return true;
}

std::optional<v1::AgentMessage> UplinkQueue::Next(TimePoint now) {
  if (queue_.empty()) return std::nullopt;
  v1::AgentMessage message;
  if (!queue_.front().report) {
    Item item = std::move(queue_.front());
    queue_.pop_front();
    if (item.passing) return std::move(item.fact);
    message = item.fact;
    if (message.has_worker_exited()) {
      message.mutable_worker_exited()->set_observed_ms(
          std::chrono::duration<double, std::milli>(now - item.since).count());
    }
    item.sent = now;
    sent_.push_back(std::move(item));
    return message;
  }
  size_t bytes = 0;
  while (!queue_.empty() && queue_.front().report && bytes < kBatchBytes) {
    v1::RankReport report = *std::move(queue_.front().report);
    queue_.pop_front();
    bytes += report.ByteSizeLong();
    *message.mutable_reports()->add_reports() = std::move(report);
  }
  report_bytes_ -= bytes;
  return message;
}

void UplinkQueue::StreamEnded() {
  std::erase_if(queue_, [](const Item& item) { return item.report.has_value() || item.passing; });
  report_bytes_ = 0;
  for (; !sent_.empty(); sent_.pop_back()) queue_.push_front(std::move(sent_.back()));
}

std::vector<v1::WorkerExited> UplinkQueue::UntoldExits() const {
  std::vector<v1::WorkerExited> exits;
  for (const Item& item : queue_) {
    if (!item.sent && item.fact.has_worker_exited()) exits.push_back(item.fact.worker_exited());
  }
  return exits;
}

std::vector<v1::AgentMessage> UplinkQueue::TakeSettled(TimePoint now) {
  std::vector<v1::AgentMessage> settled;
  while (!sent_.empty() && now - *sent_.front().sent >= kSettled) {
    settled.push_back(std::move(sent_.front().fact));
    sent_.pop_front();
  }
  return settled;
}

}  // namespace tundish::agent
