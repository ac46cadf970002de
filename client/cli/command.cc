#include "client/cli/command.h"

#include <cerrno>
#include <cstdlib>
#include <unistd.h>

namespace tundish::client {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kSuccess;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kUnreachable;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return kRefused;
    default:
      return kFailed;
  }
}

void AddJsonOption(CLI::App& command, bool* json) {
  command
      .add_option_function<std::string>(
          "-o,--output", [json](const std::string& format) { *json = format == "json"; },
          "text (default) or json")
      ->check(CLI::IsMember({"text", "json"}));
}

void Print(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    // Nobody reads any more (a closed pipe ends the process by itself), or the disk is full.
    if (wrote < 0) std::exit(kFailed);
    done += static_cast<size_t>(wrote);
  }
}

}  // namespace tundish::client
