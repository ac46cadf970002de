#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "runtime/metrics/metrics.h"
#include "server/jobs/core.h"

namespace tundish::daemon {

/// tundishd's metrics (docs/metrics.md), kept up to date from what became durable. Lives on the
/// core's loop; Text() there too. Series of an ended job stay for `kKeepEnded`, so that the last
/// values are scraped, then go.
class Telemetry : public jobs::Observer {
 public:
  static constexpr std::chrono::seconds kKeepEnded{60};

  Telemetry();

  void OnUpdate(const jobs::Job& job, const v1::JobUpdate& update) override;
  void OnTick(const std::map<std::string, std::unique_ptr<jobs::Job>>& jobs,
              const jobs::NodeTable& nodes, const jobs::Committer& committer,
              jobs::Now now) override;
  void OnCommit(std::chrono::duration<double> took) override;

  std::string Text() const { return metrics_.Text(); }

 private:
  void ShowIncident(const v1::Incident& incident);
  void ShowPoint(const jobs::Job& job, const v1::MetricPoint& point);
  void ShowDevices(const jobs::NodeTable& nodes);

  metrics::Metrics metrics_;
  /// Jobs with series; ended ones with the time theirs go.
  std::map<std::string, std::chrono::steady_clock::time_point> shown_;
};

}  // namespace tundish::daemon
