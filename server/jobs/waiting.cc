#include "server/jobs/waiting.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tundish::jobs {
namespace {

double SecondsUntil(std::chrono::steady_clock::time_point then, Now now) {
  return std::max(0.0, std::chrono::duration<double>(then - now.steady).count());
}

/// "of 4 cpu devices 1 is free; 2 more on drained host-b; 4 more on unreachable host-c"
std::string Devices(const std::string& kind, const std::vector<scheduler::NodeView>& nodes) {
  int total = 0;
  int free = 0;
  std::string elsewhere;
  for (const scheduler::NodeView& node : nodes) {
    int here = 0;
    for (const scheduler::NodeDevice& device : node.devices) {
      if (device.kind != kind) continue;
      ++here;
      if (node.ready && !node.drained) free += device.free;
    }
    if (node.ready && !node.drained) {
      total += here;
    } else if (here > 0) {
      elsewhere += fmt::format("; {} more on {} {}", here, node.ready ? "drained" : "unreachable",
                               node.node);
    }
  }
  return fmt::format("of {} {} devices {} free{}", total, kind,
                     free == 0 ? "none is" : fmt::format("{} {}", free, free == 1 ? "is" : "are"),
                     elsewhere);
}

std::string Of(const Member& member) {
  return fmt::format("rank dp={} tp={}", member.dp, member.tp);
}

/// What this one still has to do; empty if nothing.
std::string Awaited(const Member& member, Now now) {
  const std::string left = member.limit == kNoLimit
                               ? ""
                               : fmt::format(", {:.0f} s left", SecondsUntil(member.limit, now));
  if (!member.kill_cause.empty()) {
    return fmt::format("{} on {} is being killed ({})", Of(member), member.node, member.kill_cause);
  }
  switch (member.phase) {
    case MemberPhase::kStarting:
      if (member.start_after > now.steady) {
        return fmt::format("{} on {} starts again in {:.1f} s, since it failed before", Of(member),
                           member.node, SecondsUntil(member.start_after, now));
      }
      return fmt::format("{} is starting on {} {}{}", Of(member), member.node,
                         fmt::join(member.devices, ","), left);
    case MemberPhase::kForming:
      return fmt::format("{} on {} has yet to form its groups", Of(member), member.node);
    case MemberPhase::kStopping:
      return fmt::format("{} on {} has yet to stop{}", Of(member), member.node, left);
    case MemberPhase::kSaving:
      return fmt::format("{} on {} writes its state{}", Of(member), member.node, left);
    default:
      return "";
  }
}

}  // namespace

std::string WhatItWaitsFor(const Job& job, const std::vector<scheduler::NodeView>& nodes, Now now) {
  if (job.stage == Stage::kReleasing) {
    return fmt::format("{} processes have yet to leave", job.members.size());
  }
  if (job.stage != Stage::kCollecting && job.stage != Stage::kForming) return "";
  std::vector<std::string> parts;
  std::string vacant;
  for (const Member& member : job.members) {
    if (member.phase == MemberPhase::kVacant) {
      vacant += fmt::format("{}{}", vacant.empty() ? "" : ", ", Of(member));
    } else if (std::string awaited = Awaited(member, now); !awaited.empty()) {
      parts.push_back(std::move(awaited));
    }
  }
  if (!vacant.empty() && !job.progress.has_parking()) {
    std::string text =
        fmt::format("no device for {}: {}", vacant, Devices(job.spec().parallel().device(), nodes));
    if (job.wait_limit != kNoLimit) {
      text += fmt::format("; it keeps its other devices for {:.0f} s more",
                          SecondsUntil(job.wait_limit, now));
    }
    parts.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace tundish::jobs
