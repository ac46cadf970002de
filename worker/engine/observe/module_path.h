#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tundish::observe {

/// Where in the model a watched thread is: in forward by the scopes it entered, in backward by the
/// autograd node it evaluates, which is looked up by the sequence number it got when forward made
/// it. Used by one thread at a time.
class ModulePath {
 public:
  /// "blocks" and 3 append "blocks.3"; a negative index appends none.
  void Enter(std::string_view name, int64_t index);
  void Leave();

  /// `thread` made the node, and `sequence` is its number there (at::RecordFunction::seqNr).
  void EnterNode(uint64_t thread, int64_t sequence);
  void LeaveNode();

  /// "blocks.3.attn"; empty outside the model.
  const std::string& current() const;
  bool in_backward() const { return !nodes_.empty(); }

 private:
  struct Node {
    std::string module;
    size_t depth = 0;  ///< Scopes open when it began: more of them mean a recomputed forward.
  };

  void Remember();

  std::string path_;
  std::vector<size_t> lengths_;  ///< Of path_ before each open scope.
  std::vector<Node> nodes_;
  /// From this number on, nodes belong to that module.
  std::map<std::pair<uint64_t, int64_t>, std::string> first_number_;
};

/// Names a part of the model for as long as it lives, on the thread that made it. Costs a
/// thread-local look-up when nobody watches.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name, int64_t index = -1);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  ModulePath* path_;  // Of the WatchScope around this one; null when nobody watches.
};

}  // namespace tundish::observe
