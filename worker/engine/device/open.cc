#include <dlfcn.h>
#include <filesystem>

#include <c10/util/Exception.h>

#include "worker/engine/device/backend.h"
#include "worker/engine/device/cpu_backend.h"

namespace tundish::device {
namespace {

std::unique_ptr<Backend> OpenPlugin(const std::string& kind, const std::string& name) {
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                                     ("tundish_backend_" + kind + ".so");
  // Never closed: LibTorch's CUDA libraries register things that live until the process ends.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  TORCH_CHECK(library, "device kind '", kind, "' needs the plug-in ", file.string(),
              ", which does not load: ", dlerror());
  auto open = reinterpret_cast<OpenBackendFunction>(dlsym(library, "TundishOpenBackend"));
  TORCH_CHECK(open, file.string(), " is not a Tundish device plug-in: no TundishOpenBackend");
  return std::unique_ptr<Backend>(open(name.c_str()));
}

}  // namespace

std::unique_ptr<Backend> OpenBackend(const std::string& kind, const std::string& name) {
  if (kind == "cpu") return std::make_unique<CpuBackend>();
  TORCH_CHECK(kind == "cuda", "device kind '", kind, "' is not known; cpu and cuda are");
  return OpenPlugin(kind, name);
}

}  // namespace tundish::device
