#include "server/jobs/changes.h"

#include <utility>

#include "server/jobs/job.h"

namespace tundish::jobs {

void Changes::Publish(Job& job, v1::JobUpdate update) {
  writes.AppendUpdate(job.id(), update);
  updates[job.id()].push_back(std::move(update));
  TouchProgress(job);  // it holds last_seq
}

void Changes::Seal() {
  for (const auto& [job, dirty] : std::exchange(dirty_, {})) {
    if (dirty.job) writes.PutJob(job->record);
    if (dirty.progress) writes.PutProgress(job->DurableProgress());
    if (dirty.arrangement) writes.PutArrangement(job->arrangement);
  }
}

}  // namespace tundish::jobs
