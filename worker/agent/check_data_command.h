#pragma once

namespace tundish::agent {

/// `tundish-agent check-data`: reads a resolved JobSpec from standard input, checks its data with
/// `threads` threads, and writes a CheckDataResult to standard output. Ends with its parent.
/// Returns the exit code: 0 when a result, good or bad, was written.
int RunCheckDataCommand(int threads);

}  // namespace tundish::agent
