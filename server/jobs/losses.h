#pragma once

#include <string>

#include "server/jobs/context.h"
#include "server/jobs/job.h"

// What a failure does to a job: the incident record, the replacement, the budget.
namespace tundish::jobs {

struct Loss {
  /// As in Incident.cause: "killed_by_signal_9".
  std::string cause;
  /// From the agent's observation to its message, milliseconds.
  double detect_ms = 0;
  /// For people; may be empty.
  std::string detail;
};

/// The member's process is gone; its devices are free. Replaces it, or ends the job when the budget
/// of failures is used up.
void OnMemberGone(Job& job, Member& member, const Loss& loss, Context& context);

/// Every process of the job on `node` is given up; its slots are vacant until FillVacancies finds
/// devices.
void OnHostLost(Job& job, const std::string& node, Context& context);

/// Starts processes for vacant slots on free devices, as far as there are any.
void FillVacancies(Job& job, Context& context);

/// Something other than a death makes a new arrangement necessary ("collective_failed",
/// "step_deadline"): counts as a failure, stops everybody.
void OnDisturbance(Job& job, Member& member, const std::string& cause, const std::string& detail,
                   Context& context);

/// Stops everybody and forms the groups again without counting a failure; RECOVERING meanwhile.
void Regroup(Job& job, const std::string& reason, const std::string& message, Context& context);

/// Milestones of the open incident; do nothing when there is none.
void NoteCut(Job& job, uint32_t cut_step, uint32_t steps_lost, std::string_view restored_from,
             Context& context);
void NoteFormed(Job& job, Context& context);
/// What took the lost rank's place in the open incident: see Incident.replacement.
void NoteReplacement(Job& job, const std::string& replacement, Context& context);
/// Closes it and publishes "recovered".
void CloseIncident(Job& job, Context& context);
/// The job gives its devices back instead of recovering: closes it and publishes "released".
void NoteReleased(Job& job, uint32_t step, Context& context);

}  // namespace tundish::jobs
