#include "worker/engine/device/process.h"

#include <csignal>
#include <cstdlib>

namespace tundish::device {

void PrepareProcess() {
  std::signal(SIGPIPE, SIG_IGN);
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
}

}  // namespace tundish::device
