#include "worker/engine/observe/operator_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace tundish::observe {
namespace {

// Carried by LibTorch from the thread that calls backward to the threads that run it.
constexpr c10::DebugInfoKind kKind = c10::DebugInfoKind::PRODUCER_INFO;

struct State final : public c10::DebugInfoBase {
  std::vector<OperatorWatch*> watches;
  ModulePath path;
};

State* Current() {
  return static_cast<State*>(c10::ThreadLocalDebugInfo::get(kKind));
}

struct Started final : public at::ObserverContext {
  int64_t nanoseconds = 0;
};

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::unique_ptr<at::ObserverContext> Start(const at::RecordFunction& function) {
  State* state = Current();
  if (state == nullptr) return nullptr;
  auto started = std::make_unique<Started>();
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    state->path.EnterNode(function.forwardThreadId(), function.seqNr());
  } else {
    const at::DisableRecordFunctionGuard unwatched;
    const OperatorCall call{function, state->path.current(), state->path.in_backward(), Now()};
    for (OperatorWatch* watch : state->watches) watch->Before(call);
  }
  started->nanoseconds = Now();
  return started;
}

void End(const at::RecordFunction& function, at::ObserverContext* context) {
  State* state = Current();
  if (state == nullptr || context == nullptr) return;
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    state->path.LeaveNode();
    return;
  }
  const at::DisableRecordFunctionGuard unwatched;
  const OperatorCall call{function, state->path.current(), state->path.in_backward(),
                          static_cast<Started*>(context)->nanoseconds};
  for (OperatorWatch* watch : state->watches) watch->After(call);
}

}  // namespace

struct WatchScope::Installed {
  Installed(std::shared_ptr<State> state, const at::RecordFunctionCallback& callback)
      : info(kKind, std::move(state)), handle(at::addThreadLocalCallback(callback)) {}
  ~Installed() { at::removeCallback(handle); }

  c10::DebugInfoGuard info;
  at::CallbackHandle handle;
};

WatchScope::WatchScope(std::vector<OperatorWatch*> watches) {
  if (watches.empty()) return;
  at::RecordFunctionCallback callback(&Start, &End);
  callback.scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  callback.needsInputs(
      std::ranges::any_of(watches, [](const OperatorWatch* w) { return w->needs_inputs(); }));
  callback.needsOutputs(
      std::ranges::any_of(watches, [](const OperatorWatch* w) { return w->needs_outputs(); }));
  auto state = std::make_shared<State>();
  state->watches = std::move(watches);
  installed_ = std::make_unique<Installed>(std::move(state), callback);
}

WatchScope::~WatchScope() = default;

ModulePath* WatchScope::path() {
  State* state = Current();
  return state != nullptr ? &state->path : nullptr;
}

}  // namespace tundish::observe
