#include "worker/agent/metric_table.h"

namespace tundish::agent {

using metrics::Kind;

std::vector<metrics::Definition> MetricTable() {
  return {
      {Kind::kGauge, "tundish_agent_workers", "Rank processes alive on this host."},
      {Kind::kGauge, "tundish_agent_spares", "Processes that stand by to replace a lost rank."},
      {Kind::kCounter,
       "tundish_agent_worker_exits_total",
       "Rank processes that ended: finished, error, killed_by_signal_N, or unknown (adopted).",
       {"cause"}},
      {Kind::kCounter, "tundish_agent_reports_relayed_total",
       "Reports of ranks passed on to the coordinator."},
      {Kind::kCounter, "tundish_agent_reports_refused_total",
       "Reports left with their ranks, which send them again, because the coordinator was away or "
       "slow."},
      {Kind::kCounter, "tundish_agent_store_calls_total",
       "Rendezvous store calls of ranks relayed to the coordinator."},
      {Kind::kGauge, "tundish_agent_coordinator_connected",
       "1 while the agent is registered with the coordinator, else 0."},
      {Kind::kGauge, "tundish_agent_resident_memory_bytes", "Resident memory of the agent."},
      {Kind::kCounter, "tundish_agent_cpu_seconds_total", "User and system CPU time of the agent."},
  };
}

}  // namespace tundish::agent
