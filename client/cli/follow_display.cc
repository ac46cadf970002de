#include "client/cli/follow_display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/core.h>

#include "client/cli/command.h"
#include "client/link/follow.h"
#include "client/render/format.h"
#include "client/render/job_text.h"
#include "client/render/json.h"
#include "client/render/progress.h"

namespace tundish::client {
namespace {

/// Width of the terminal on standard output; 0 if there is none.
int TerminalColumns() {
  if (!isatty(STDOUT_FILENO)) return 0;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

absl::StatusOr<v1::JobState> FollowAsJson(Coordinator& coordinator,
                                          const v1::WatchJobRequest& request) {
  return FollowJob(coordinator, request,
                   {.update = [](const v1::JobUpdate& update) { Print(ToJson(update) + "\n"); },
                    .notice = PrintNotice});
}

absl::StatusOr<v1::JobState> FollowAsText(Coordinator& coordinator,
                                          const v1::WatchJobRequest& request) {
  Progress progress(TerminalColumns(), Print);
  const absl::StatusOr<v1::JobState> state = FollowJob(
      coordinator, request,
      {.update =
           [&](const v1::JobUpdate& update) { progress.Show(update, Progress::Clock::now()); },
       .notice =
           [&](const std::string& text) {
             progress.Finish();
             PrintNotice(text);
           }});
  progress.Finish();
  return state;
}

}  // namespace

void PrintNotice(const std::string& text) {
  fmt::print(stderr, "tundish: {}\n", text);
}

absl::StatusOr<v1::Job> GetJob(Coordinator& coordinator, const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return coordinator.Call(&v1::JobService::StubInterface::GetJob, request);
}

absl::StatusOr<int> ShowJob(Coordinator& coordinator, const v1::WatchJobRequest& request,
                            bool json) {
  const std::string& job_id = request.job_id();
  const absl::StatusOr<v1::JobState> state =
      json ? FollowAsJson(coordinator, request) : FollowAsText(coordinator, request);
  if (!state.ok()) return state.status();
  // The fate is known even if the coordinator is gone by now.
  const absl::StatusOr<v1::Job> job = GetJob(coordinator, job_id);
  if (!json && job.ok()) Print("\n" + ResultText(*job));
  if (!job.ok()) PrintNotice(std::string(job.status().message()));
  if (*state == v1::SUCCEEDED) return kSuccess;
  PrintNotice(fmt::format("job {} {}: {}", job_id, v1::JobState_Name(*state),
                          job.ok()
                              ? Printable(job->message().empty() ? job->reason() : job->message())
                              : "see `tundish describe`"));
  return kFailed;
}

}  // namespace tundish::client
