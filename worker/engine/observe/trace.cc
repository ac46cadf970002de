#include "worker/engine/observe/trace.h"

#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tundish::observe {
namespace {

constexpr size_t kMostSpans = 1'000'000;
constexpr std::array<std::string_view, 5> kTrackNames = {"", "steps", "operators", "collectives",
                                                         "gradient buckets"};

int64_t Nanoseconds(TraceRecorder::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

void AppendQuoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

void TraceRecorder::After(const OperatorCall& call) {
  const bool collective = call.function.scope() == at::RecordScope::USER_SCOPE;
  Add({.track = collective ? Track::kCollectives : Track::kOperators,
       .name = call.function.name(),
       .detail = call.backward && !collective ? call.module + " backward" : call.module,
       .start_nanoseconds = call.start_nanoseconds,
       .end_nanoseconds = Nanoseconds(Clock::now())});
}

void TraceRecorder::AddPhase(std::string_view name, uint32_t step, Clock::time_point start,
                             Clock::time_point end) {
  Add({.track = Track::kSteps,
       .name = std::string(name),
       .detail = fmt::format("step {}", step),
       .start_nanoseconds = Nanoseconds(start),
       .end_nanoseconds = Nanoseconds(end)});
}

void TraceRecorder::AddBucket(size_t bytes, Clock::time_point start, Clock::time_point end) {
  Add({.track = Track::kBuckets,
       .name = "all_reduce",
       .detail = fmt::format("{} bytes", bytes),
       .start_nanoseconds = Nanoseconds(start),
       .end_nanoseconds = Nanoseconds(end)});
}

void TraceRecorder::Add(Span span) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() < kMostSpans) {
    spans_.push_back(std::move(span));
  } else {
    ++dropped_;
  }
}

std::string TraceRecorder::ToJson() const {
  const std::lock_guard lock(mutex_);
  // One process per rank, so that traces of several ranks can be opened together.
  const int process = dp_ * 10000 + tp_;
  std::string out = fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dp\":\"{}\",\"tp\":\"{}\","
      "\"spans_dropped\":\"{}\"}},\"traceEvents\":[\n",
      dp_, tp_, dropped_);
  const auto append = std::back_inserter(out);
  fmt::format_to(append,
                 "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":"
                 "\"rank dp={} tp={}\"}}}}",
                 process, dp_, tp_);
  for (size_t track = 1; track < kTrackNames.size(); ++track) {
    fmt::format_to(append,
                   ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},"
                   "\"args\":{{\"name\":\"{}\"}}}}",
                   process, track, kTrackNames[track]);
  }
  for (const Span& span : spans_) {
    out += ",\n{\"ph\":\"X\",\"name\":";
    AppendQuoted(out, span.name);
    fmt::format_to(append, ",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}",
                   kTrackNames[static_cast<size_t>(span.track)], process,
                   static_cast<int>(span.track), static_cast<double>(span.start_nanoseconds) / 1e3,
                   static_cast<double>(span.end_nanoseconds - span.start_nanoseconds) / 1e3);
    if (!span.detail.empty()) {
      out += ",\"args\":{\"at\":";
      AppendQuoted(out, span.detail);
      out += '}';
    }
    out += '}';
  }
  out += "\n]}\n";
  return out;
}

}  // namespace tundish::observe
