#pragma once

#include <cstddef>
#include <vector>

#include "runtime/metrics/metrics.h"

namespace tundish::agent {

/// Rows of the agent's metric table, in its order; docs/metrics.md describes them for operators.
enum Metric : size_t {
  kWorkers,
  kSpares,
  kWorkerExits,
  kReportsRelayed,
  kReportsRefused,
  kStoreCalls,
  kCoordinatorConnected,
  kResidentBytes,
  kCpuSeconds,
};

std::vector<metrics::Definition> MetricTable();

}  // namespace tundish::agent
