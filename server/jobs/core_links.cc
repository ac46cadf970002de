#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "runtime/base/ulid.h"
#include "server/jobs/core.h"

// A node's data interface is measured when it joins, so that a wrong address or a slow cable shows
// then and not in the middle of a recovery.
namespace tundish::jobs {
namespace {

constexpr uint32_t kProbeBytes = 4 << 20;
constexpr std::chrono::milliseconds kProbeLimit{3'000};
/// Peers that have to agree before a node is blamed: one of them may be the one that is cut off.
constexpr size_t kMostPeers = 3;
constexpr std::chrono::seconds kMeasureAgain{30};

/// What is wrong with the way to `node`; empty: nothing.
std::string Problem(const Node& node, const v1::LinkReport& report, double least_rate) {
  if (!report.error().empty()) {
    return fmt::format(
        "its data address {}:{} cannot be reached: {:.200}; check --data-address and "
        "the firewall",
        node.registration.data_address(), node.registration.data_port(), report.error());
  }
  if (report.bytes_per_second() >= least_rate) return "";
  return fmt::format("its data address {} is slow: {:.1f} MB/s, at least {:.1f} MB/s are wanted",
                     node.registration.data_address(), report.bytes_per_second() / 1e6,
                     least_rate / 1e6);
}

/// The next one by name that can measure, so that the work is spread; one without a problem of its
/// own is the better witness.
const Node* FindPeer(const std::map<std::string, Node, std::less<>>& nodes, const Node& node) {
  const Node* second_best = nullptr;
  auto next = nodes.upper_bound(node.name);
  for (size_t i = 0; i + 1 < nodes.size(); ++i, ++next) {
    if (next == nodes.end()) next = nodes.begin();
    const Node& other = next->second;
    if (!other.ready() || other.registration.data_port() == 0 ||
        node.link_check.asked.contains(other.name)) {
      continue;
    }
    if (other.problem.empty()) return &other;
    if (second_best == nullptr) second_best = &other;
  }
  return second_best;
}

}  // namespace

/// Asks the next peer, if there is one. A node alone has nobody to be reached by.
void Core::StartLinkCheck(Node& node, Context& context) {
  node.link_check.probe_id.clear();
  if (node.registration.data_port() == 0 || node.link_check.asked.size() >= kMostPeers) return;
  const Node* peer = FindPeer(nodes_.nodes(), node);
  if (peer == nullptr) return;
  node.link_check.asked.insert(peer->name);
  node.link_check.probe_id = NewUlid(context.now.wall);
  node.link_check.limit = context.now.steady + 2 * kProbeLimit;
  v1::CoordinatorMessage message;
  v1::ProbeLink& probe = *message.mutable_probe_link();
  probe.set_probe_id(node.link_check.probe_id);
  probe.set_node(node.name);
  probe.set_address(node.registration.data_address());
  probe.set_port(node.registration.data_port());
  probe.set_bytes(kProbeBytes);
  probe.set_limit_ms(static_cast<uint32_t>(kProbeLimit.count()));
  context.changes.Send(peer->name, std::move(message));
}

void Core::OnLinkReport(const Node& peer, const v1::LinkReport& report, Context& context) {
  Node* node = nodes_.Find(report.node());
  if (node == nullptr || node->link_check.probe_id.empty() ||
      node->link_check.probe_id != report.probe_id()) {
    return;
  }
  context.changes.schedule = true;
  const std::string problem = Problem(*node, report, parts_.settings.least_link_bytes_per_second);
  if (problem.empty()) {
    if (!node->problem.empty()) spdlog::info("event=link_good_again node={}", node->name);
    spdlog::debug(
        "event=link_measured node={} peer={} round_trip_ms={:.3f} bytes_per_second={:.0f}",
        node->name, peer.name, report.round_trip_ms(), report.bytes_per_second());
    node->problem.clear();
    node->link_check = {};
    return;
  }
  spdlog::warn("event=link_bad node={} peer={} problem=\"{}\"", node->name, peer.name, problem);
  node->problem = fmt::format("seen from {}: {}", peer.name, problem);
  node->link_check.again = context.now.steady + kMeasureAgain;
  StartLinkCheck(*node, context);
}

void Core::CheckLinks(Context& context) {
  for (auto& [name, node] : nodes_.nodes()) {
    if (!node.ready()) continue;
    const bool unanswered =
        !node.link_check.probe_id.empty() && node.link_check.limit <= context.now.steady;
    const bool again = node.link_check.probe_id.empty() && !node.problem.empty() &&
                       node.link_check.again <= context.now.steady;
    if (!unanswered && !again) continue;
    if (again) {
      node.link_check.asked.clear();
      node.link_check.again = context.now.steady + kMeasureAgain;
    }
    StartLinkCheck(node, context);
    context.changes.schedule = true;
  }
}

}  // namespace tundish::jobs
