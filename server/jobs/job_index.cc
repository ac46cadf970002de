#include "server/jobs/job_index.h"

namespace tundish::jobs {
namespace {

void Keep(JobIndex::Jobs& view, Job& job, bool wanted) {
  if (wanted) {
    view.try_emplace(job.id(), &job);
  } else {
    view.erase(job.id());
  }
}

}  // namespace

void JobIndex::Update(Job& job) {
  const bool ended = job.ended();
  const v1::JobState state = job.record.state();
  Keep(unchecked_, job, !ended && !job.check.done && job.check.task_id.empty());
  Keep(pending_, job, !ended && job.check.done && state == v1::PENDING && !job.held);
  Keep(recovering_, job, !ended && state == v1::RECOVERING);
  Keep(placed_, job, !job.members.empty());
}

void JobIndex::Forget(const std::string& job_id) {
  for (Jobs* view : {&unchecked_, &pending_, &recovering_, &placed_}) view->erase(job_id);
}

}  // namespace tundish::jobs
