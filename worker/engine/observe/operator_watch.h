#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/record_function.h>

#include "worker/engine/observe/module_path.h"

namespace tundish::observe {

/// One call of an operator.
struct OperatorCall {
  /// Inputs are there in Before, outputs in After, if the watch needs them.
  const at::RecordFunction& function;
  const std::string& module;  ///< See ModulePath::current.
  bool backward = false;
  int64_t start_nanoseconds = 0;  ///< Steady clock.
};

/// Hears of every operator that a thread calls inside a WatchScope, as it was called: before
/// autocast, and again after it; and of every RECORD_USER_SCOPE (collectives). Must not throw:
/// LibTorch would drop the exception.
class OperatorWatch {
 public:
  virtual ~OperatorWatch() = default;
  virtual bool needs_inputs() const { return false; }
  virtual bool needs_outputs() const { return false; }
  virtual void Before(const OperatorCall& call) {}
  virtual void After(const OperatorCall& call) {}
};

/// Watches this thread's operators, and those its backward runs on other threads, for as long as it
/// lives. Not nested. Nothing is left behind: outside of it operators run as if there were none.
class WatchScope {
 public:
  /// The watches outlive the scope; empty: watches nothing.
  explicit WatchScope(std::vector<OperatorWatch*> watches);
  ~WatchScope();
  WatchScope(const WatchScope&) = delete;
  WatchScope& operator=(const WatchScope&) = delete;

  /// Of the scope the calling thread works in; null when there is none.
  static ModulePath* path();

 private:
  struct Installed;
  std::unique_ptr<Installed> installed_;
};

}  // namespace tundish::observe
