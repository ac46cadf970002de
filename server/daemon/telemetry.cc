#include "server/daemon/telemetry.h"

#include <algorithm>
#include <vector>

#include "runtime/metrics/process_usage.h"

namespace tundish::daemon {
namespace {

using metrics::Kind;

enum Metric : size_t {
  kJobs,
  kImagesPerSecond,
  kLoss,
  kStep,
  kLearningRate,
  kStepSeconds,
  kDataWait,
  kIncidents,
  kRecoverySeconds,
  kNodeDevices,
  kNodeUp,
  kCommitSeconds,
  kBacklogBytes,
  kResidentBytes,
  kCpuSeconds,
};

std::vector<metrics::Definition> Table() {
  const std::vector<std::string> job = {"job_id", "name"};
  return {
      {Kind::kGauge, "tundish_jobs", "Jobs by state.", {"state"}},
      {Kind::kGauge, "tundish_job_images_per_second",
       "Images of the global batch divided by the slowest rank's step time.", job},
      {Kind::kGauge, "tundish_job_loss", "Loss of the last step's global batch.", job},
      {Kind::kGauge, "tundish_job_step", "Steps committed by every rank.", job},
      {Kind::kGauge, "tundish_job_learning_rate", "Learning rate of the last step.", job},
      {Kind::kGauge, "tundish_job_step_seconds", "Slowest rank's wall time of the last step.", job},
      {Kind::kGauge, "tundish_job_data_wait_ratio",
       "Largest share of the last step's time that a rank waited for data.", job},
      {Kind::kCounter, "tundish_incidents_total", "Failures recovered from, by cause.", {"cause"}},
      {Kind::kHistogram,
       "tundish_recovery_seconds",
       "Time of a recovery, by phase; total: until every rank had committed a step again.",
       {"phase"},
       {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64}},
      {Kind::kGauge, "tundish_node_devices", "Devices of a node, free or used.", {"node", "state"}},
      {Kind::kGauge, "tundish_node_up", "1 while the node's agent is heard of.", {"node"}},
      {Kind::kHistogram,
       "tundish_store_commit_seconds",
       "From handing a batch to the store until it was durable.",
       {},
       {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2}},
      {Kind::kGauge, "tundish_store_backlog_bytes", "Changes not durable yet."},
      {Kind::kGauge, "tundish_coordinator_resident_memory_bytes", "Resident memory of tundishd."},
      {Kind::kCounter, "tundish_coordinator_cpu_seconds_total", "CPU time of tundishd."},
  };
}

}  // namespace

Telemetry::Telemetry() : metrics_(Table()) {}

void Telemetry::OnCommit(std::chrono::duration<double> took) {
  metrics_.Observe(kCommitSeconds, took.count());
}

void Telemetry::OnUpdate(const jobs::Job& job, const v1::JobUpdate& update) {
  if (update.has_metric()) {
    ShowPoint(job, update.metric());
  } else if (update.event().has_incident() && update.event().incident().closed()) {
    ShowIncident(update.event().incident());
  }
}

/// Each phase by itself: the record has them from the failure on.
void Telemetry::ShowIncident(const v1::Incident& incident) {
  metrics_.Add(kIncidents, {incident.cause()});
  const auto show = [this](const char* phase, double milliseconds) {
    metrics_.Observe(kRecoverySeconds, std::max(0.0, milliseconds) / 1000, {phase});
  };
  show("detect", incident.detect_ms());
  show("quiesce", incident.quiesce_ms());
  if (incident.restore_ms() > 0) show("restore", incident.restore_ms() - incident.quiesce_ms());
  if (incident.first_step_ms() > 0) {
    show("first_step", incident.first_step_ms() - incident.restore_ms());
  }
  show("total", incident.total_ms());
}

void Telemetry::ShowPoint(const jobs::Job& job, const v1::MetricPoint& point) {
  const metrics::LabelValues labels = {job.id(), job.spec().name()};
  metrics_.Set(kLoss, point.loss(), labels);
  metrics_.Set(kStep, point.step() + 1, labels);
  metrics_.Set(kLearningRate, point.learning_rate(), labels);
  if (point.step_seconds() > 0) {  // a step committed at a cut has no time
    metrics_.Set(kStepSeconds, point.step_seconds(), labels);
    metrics_.Set(kImagesPerSecond, point.images_per_second(), labels);
    double wait_ratio = 0;
    for (const v1::RankStepTime& rank : point.ranks()) {
      if (rank.step_seconds() <= 0) continue;
      wait_ratio = std::max(wait_ratio, rank.data_wait_seconds() / rank.step_seconds());
    }
    metrics_.Set(kDataWait, wait_ratio, labels);
  }
  shown_.try_emplace(job.id(), std::chrono::steady_clock::time_point::max());
}

void Telemetry::OnTick(const std::map<std::string, std::unique_ptr<jobs::Job>>& jobs,
                       const jobs::NodeTable& nodes, const jobs::Committer& committer,
                       jobs::Now now) {
  std::map<int, int> by_state;
  for (int state = v1::PENDING; state <= v1::PREEMPTED; ++state) by_state[state] = 0;
  for (const auto& [id, job] : jobs) {
    ++by_state[job->record.state()];
    const auto shown = shown_.find(id);
    if (shown == shown_.end()) {
      // After a restart the running jobs' last points are shown again.
      if (!job->ended() && job->progress.has_latest()) ShowPoint(*job, job->progress.latest());
    } else if (job->ended()) {
      shown->second = std::min(shown->second, now.steady + kKeepEnded);
    }
  }
  for (const auto& [state, count] : by_state) {
    metrics_.Set(kJobs, count, {jobs::StateWord(static_cast<v1::JobState>(state))});
  }
  std::erase_if(shown_, [&](const auto& entry) {
    if (entry.second > now.steady) return false;
    metrics_.RemoveWhere("job_id", entry.first);
    return true;
  });
  ShowDevices(nodes);
  metrics_.Set(kBacklogBytes, static_cast<double>(committer.backlog_bytes()));
  const metrics::ProcessUsage usage = metrics::ReadProcessUsage();
  metrics_.Set(kResidentBytes, static_cast<double>(usage.resident_bytes));
  metrics_.RaiseTo(kCpuSeconds, usage.cpu_seconds);
}

void Telemetry::ShowDevices(const jobs::NodeTable& nodes) {
  for (const scheduler::NodeView& node : nodes.View()) {
    int free = 0;
    for (const scheduler::NodeDevice& device : node.devices) free += device.free;
    metrics_.Set(kNodeDevices, free, {node.node, "free"});
    metrics_.Set(kNodeDevices, static_cast<double>(node.devices.size()) - free,
                 {node.node, "used"});
    metrics_.Set(kNodeUp, node.ready ? 1 : 0, {node.node});
  }
}

}  // namespace tundish::daemon
