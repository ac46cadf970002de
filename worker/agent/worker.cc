#include "worker/agent/worker.h"

#include <fmt/format.h>

namespace tundish::agent {

bool OrderBuffer::Add(v1::RankOrder order) {
  if (order.has_ack()) {
    std::erase_if(orders_, [](const v1::RankOrder& earlier) { return earlier.has_ack(); });
  }
  orders_.push_back(std::move(order));
  if (orders_.size() <= kBound) return true;
  orders_.pop_front();
  return false;
}

std::string ExitCause(const v1::WorkerExited& exited) {
  if (exited.signal() > 0) return fmt::format("killed_by_signal_{}", exited.signal());
  if (exited.exit_code() != 0) return "error";
  return exited.adopted() ? "unknown" : "finished";
}

bool SecretsEqual(std::string_view secret, std::string_view given) {
  if (secret.empty() || secret.size() != given.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < secret.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (secret[i] ^ given[i]));
  }
  return difference == 0;
}

}  // namespace tundish::agent
