#include "server/jobs/metric_points.h"

#include <algorithm>
#include <utility>

namespace tundish::jobs {
namespace {

// Ranks meet in every step, so one is at most one step ahead; the rest is for reports under way.
constexpr uint32_t kFarthestAhead = 64;
constexpr size_t kRecentSteps = 32;

bool Due(const Job& job, uint32_t step) {
  if (step < job.covered) return true;
  return std::ranges::all_of(job.members,
                             [step](const Member& member) { return member.step > step; });
}

/// A step that ranks committed at a cut, not in a step's course, has no time.
void RememberStepTime(Job& job, double seconds) {
  if (!(seconds > 0)) return;
  if (job.recent_step_seconds.size() == kRecentSteps) {
    job.recent_step_seconds.erase(job.recent_step_seconds.begin());
  }
  job.recent_step_seconds.push_back(seconds);
}

}  // namespace

bool FileStep(Job& job, int slot, const v1::RankReport& report) {
  const uint32_t step = report.step().step();
  if (step < job.next_point || step >= job.next_point + kFarthestAhead) return false;
  const auto cut = job.cuts.find(report.job_epoch());
  if (cut != job.cuts.end() && step >= cut->second) return false;
  job.steps[step][slot] = report;
  return true;
}

v1::MetricPoint MakePoint(const Job& job, uint32_t step, const StepReports& reports) {
  v1::MetricPoint point;
  point.set_step(step);
  point.set_total_steps(job.record.total_steps());
  double slowest = 0;
  for (const auto& [slot, report] : reports) {
    const v1::StepDone& done = report.step();
    // Equal on all ranks: they all-reduced it.
    point.set_loss(done.loss());
    point.set_gradient_norm(done.gradient_norm());
    point.set_learning_rate(done.learning_rate());
    point.set_skipped(done.skipped());
    point.set_data_epoch(done.data_epoch());
    point.set_job_epoch(std::max(point.job_epoch(), report.job_epoch()));
    slowest = std::max(slowest, done.time().step_seconds());
    v1::RankStepTime* time = point.add_ranks();
    *time = done.time();
    time->set_dp(slot / job.tensor());
    time->set_tp(slot % job.tensor());
  }
  point.set_step_seconds(slowest);
  if (slowest > 0) {
    point.set_images_per_second(job.spec().training().global_batch() / slowest);
  }
  return point;
}

double EstimateRemaining(const std::vector<double>& recent_step_seconds, uint32_t steps_left) {
  if (recent_step_seconds.empty()) return 0;
  std::vector<double> sorted = recent_step_seconds;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle * steps_left;
}

void PublishPoints(Job& job, Context& context) {
  // A rank that committed at a cut may have had no one to hear its report: such a step has no
  // point.
  if (!job.steps.empty() && Due(job, job.steps.begin()->first)) {
    job.next_point = job.steps.begin()->first;
  }
  for (auto next = job.steps.begin();
       next != job.steps.end() && next->first == job.next_point && Due(job, next->first);
       next = job.steps.erase(next)) {
    v1::MetricPoint point = MakePoint(job, next->first, next->second);
    RememberStepTime(job, point.step_seconds());
    const uint32_t done = point.step() + 1;
    const uint32_t left = job.record.total_steps() > done ? job.record.total_steps() - done : 0;
    point.set_eta_seconds(EstimateRemaining(job.recent_step_seconds, left));
    job.progress.set_step(done);
    job.progress.set_data_epoch(point.data_epoch());
    *job.progress.mutable_latest() = point;
    job.next_point = done;
    EmitMetric(job, std::move(point), context.now, context.changes);
  }
}

bool CutPoints(Job& job, uint32_t step, Context& context) {
  job.covered = step;
  PublishPoints(job, context);
  job.steps.erase(job.steps.lower_bound(step), job.steps.end());
  const bool rewound = step < job.next_point;
  if (rewound) job.next_point = step;
  job.progress.set_step(step);
  context.changes.TouchProgress(job);
  return rewound;
}

}  // namespace tundish::jobs
