#include "worker/engine/model/load_report.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <ATen/ops/isfinite.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace tundish::model {
namespace {

constexpr size_t kMostListed = 8;

/// "missing 2 keys ('a', 'b')"; empty without keys. A hostile file may bring any number of keys.
std::string Listed(std::string_view what, const std::vector<std::string>& keys) {
  if (keys.empty()) return "";
  const size_t shown = std::min(keys.size(), kMostListed);
  return fmt::format(
      "{} {} {} ({}{})", what, keys.size(), keys.size() == 1 ? "key" : "keys",
      fmt::join(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      keys.size() > shown ? ", ..." : "");
}

}  // namespace

void CheckFits(const std::vector<ParameterSpec>& specs,
               const std::map<std::string, at::Tensor>& full_by_name) {
  std::vector<std::string> missing, unexpected, misshaped;
  std::set<std::string_view> known;
  for (const ParameterSpec& spec : specs) {
    known.insert(spec.name);
    const auto found = full_by_name.find(spec.name);
    if (found == full_by_name.end()) {
      missing.push_back(fmt::format("'{}'", spec.name));
    } else if (found->second.sizes() != at::IntArrayRef(spec.full_shape)) {
      misshaped.push_back(fmt::format("'{}' has shape [{}], needed is [{}]", spec.name,
                                      fmt::join(found->second.sizes(), ", "),
                                      fmt::join(spec.full_shape, ", ")));
    }
  }
  for (const auto& [name, tensor] : full_by_name) {
    if (!known.contains(name)) unexpected.push_back(fmt::format("'{}'", name.substr(0, 128)));
  }
  std::vector<std::string> faults;
  for (const std::string& fault : {Listed("missing", missing), Listed("unexpected", unexpected),
                                   Listed("misshaped", misshaped)}) {
    if (!fault.empty()) faults.push_back(fault);
  }
  TORCH_CHECK(faults.empty(),
              "the weights do not fit this model: ", fmt::format("{}", fmt::join(faults, "; ")));
  for (const auto& [name, tensor] : full_by_name) {
    TORCH_CHECK(at::isfinite(tensor).all().item<bool>(), "'", name,
                "' holds a value that is not finite in the weights");
  }
}

}  // namespace tundish::model
