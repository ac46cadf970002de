#include "worker/engine/observe/module_path.h"

#include <limits>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <fmt/core.h>

#include "worker/engine/observe/operator_watch.h"

namespace tundish::observe {

void ModulePath::Enter(std::string_view name, int64_t index) {
  lengths_.push_back(path_.size());
  if (!path_.empty()) path_ += '.';
  path_ += name;
  if (index >= 0) path_ += fmt::format(".{}", index);
  Remember();
}

void ModulePath::Leave() {
  path_.resize(lengths_.back());
  lengths_.pop_back();
  Remember();
}

/// Nodes made from now on are of the module that is open now.
void ModulePath::Remember() {
  first_number_[{at::RecordFunction::currentThreadId(),
                 static_cast<int64_t>(at::sequence_number::peek())}] = path_;
}

void ModulePath::EnterNode(uint64_t thread, int64_t sequence) {
  Node& node = nodes_.emplace_back();
  node.depth = lengths_.size();
  // Nodes that accumulate gradients have no place in the sequence, and the largest number.
  if (sequence < 0 || sequence == std::numeric_limits<int64_t>::max()) return;
  const auto after = first_number_.upper_bound({thread, sequence});
  if (after == first_number_.begin()) return;
  const auto& [key, module] = *std::prev(after);
  if (key.first == thread) node.module = module;
}

void ModulePath::LeaveNode() {
  nodes_.pop_back();
}

const std::string& ModulePath::current() const {
  return !nodes_.empty() && lengths_.size() == nodes_.back().depth ? nodes_.back().module : path_;
}

ModuleScope::ModuleScope(std::string_view name, int64_t index) : path_(WatchScope::path()) {
  if (path_ != nullptr) path_->Enter(name, index);
}

ModuleScope::~ModuleScope() {
  if (path_ != nullptr) path_->Leave();
}

}  // namespace tundish::observe
