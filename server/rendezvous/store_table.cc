#include "server/rendezvous/store_table.h"

#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/core.h>

#include "runtime/base/check.h"

namespace tundish::rendezvous {
namespace {

constexpr std::uint32_t kLongestWaitMs = 600'000;

absl::Status Over(std::uint32_t asked, std::uint32_t current) {
  return absl::AbortedError(
      fmt::format("job_epoch {} is not the current one, job_epoch {} is", asked, current));
}

absl::StatusOr<std::int64_t> ParseNumber(const std::string& key, const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) return number;
  return absl::InvalidArgumentError(fmt::format(
      "key '{}' holds {} bytes that are no decimal number: add needs one", key, text.size()));
}

}  // namespace

void StoreTable::Open(const std::string& job_id, std::uint32_t job_epoch,
                      const std::vector<std::string>& worker_ids) {
  Job& job = jobs_[job_id];
  TUNDISH_CHECK(job_epoch >= job.job_epoch);
  if (job.open && job_epoch == job.job_epoch) return;
  const std::uint32_t ended = job.job_epoch;
  std::vector<Done> waiting = Advance(job, job_epoch);
  job.open = true;
  job.members = {worker_ids.begin(), worker_ids.end()};
  for (Done& done : waiting) done(Over(ended, job_epoch));
}

void StoreTable::Fence(const std::string& job_id, std::uint32_t current) {
  Job& job = jobs_[job_id];
  if (current <= job.job_epoch) return;
  const std::uint32_t ended = job.job_epoch;
  for (Done& done : Advance(job, current)) done(Over(ended, current));
}

void StoreTable::Close(const std::string& job_id) {
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return;
  std::vector<Done> waiting = Clear(job->second);
  jobs_.erase(job);
  for (Done& done : waiting) done(absl::AbortedError(fmt::format("job {} has ended", job_id)));
}

void StoreTable::Call(const v1::StoreRequest& request, Clock::time_point now, Done done) {
  const auto found = jobs_.find(request.job_id());
  if (found == jobs_.end()) {
    done(absl::NotFoundError(
        fmt::format("no running job has the id '{}'", request.job_id().substr(0, 64))));
    return;
  }
  Job& job = found->second;
  std::optional<Result> result;
  std::vector<Done> woken;
  std::string value;
  if (absl::Status admitted = Admit(request, job); !admitted.ok()) {
    result = admitted;
  } else {
    const std::string& key = request.key();
    switch (request.op_case()) {
      case v1::StoreRequest::kSet: {
        const absl::Status put = Put(job, key, request.set());
        result = put.ok() ? Result(v1::StoreReply()) : Result(put);
        break;
      }
      case v1::StoreRequest::kGet:
        result = Get(job, request, now, done);
        break;
      case v1::StoreRequest::kAdd:
        result = Add(job, key, request.add());
        break;
      case v1::StoreRequest::kCheck:
        result = v1::StoreReply();
        (*result)->set_found(job.values.contains(key));
        break;
      case v1::StoreRequest::kDelete:
        result = Delete(job, key);
        break;
      case v1::StoreRequest::OP_NOT_SET:
        result = absl::InvalidArgumentError(
            "the call names no operation: expected set, get, add, check or delete");
    }
    if (const auto there = job.values.find(key); there != job.values.end()) {
      woken = TakeWaits(job, key);
      if (!woken.empty()) value = there->second;
    }
  }
  // From here on replies may call the table again: nothing of it is touched any more.
  if (result) done(*std::move(result));
  for (Done& wake : woken) {
    v1::StoreReply reply;
    reply.set_value(value);
    reply.set_found(true);
    wake(std::move(reply));
  }
}

absl::Status StoreTable::Admit(const v1::StoreRequest& request, const Job& job) const {
  if (request.job_epoch() != job.job_epoch) return Over(request.job_epoch(), job.job_epoch);
  if (!job.open) {
    return absl::AbortedError(
        fmt::format("job_epoch {} is in preparation: wait for its assignment", job.job_epoch));
  }
  if (!job.members.contains(request.worker_id())) {
    return absl::PermissionDeniedError(fmt::format("worker '{}' is no member of job_epoch {}",
                                                   request.worker_id().substr(0, 64),
                                                   job.job_epoch));
  }
  if (request.key().empty() || request.key().size() > limits_.key_bytes) {
    return absl::InvalidArgumentError(fmt::format("a key of {} bytes: expected 1 to {}",
                                                  request.key().size(), limits_.key_bytes));
  }
  return absl::OkStatus();
}

absl::Status StoreTable::Put(Job& job, const std::string& key, std::string value) {
  if (value.size() > limits_.value_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("a value of {} bytes: expected at most {}", value.size(), limits_.value_bytes));
  }
  const auto there = job.values.find(key);
  const bool is_new = there == job.values.end();
  if (is_new && job.values.size() >= limits_.keys) {
    return absl::ResourceExhaustedError(fmt::format(
        "job_epoch {} has {} keys, the most there may be", job.job_epoch, job.values.size()));
  }
  const std::size_t before = is_new ? 0 : key.size() + there->second.size();
  const std::size_t after = key.size() + value.size();
  if (job.bytes - before + after > limits_.total_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("job_epoch {} would hold {} bytes: expected at most {}", job.job_epoch,
                    job.bytes - before + after, limits_.total_bytes));
  }
  job.bytes += after - before;
  job.values.insert_or_assign(key, std::move(value));
  return absl::OkStatus();
}

StoreTable::Result StoreTable::Add(Job& job, const std::string& key, std::int64_t amount) {
  std::int64_t number = 0;
  if (const auto there = job.values.find(key); there != job.values.end()) {
    const auto parsed = ParseNumber(key, there->second);
    if (!parsed.ok()) return parsed.status();
    number = *parsed;
  }
  if (__builtin_add_overflow(number, amount, &number)) {
    return absl::InvalidArgumentError(
        fmt::format("adding {} to key '{}' passes the range of 64 bits", amount, key));
  }
  if (absl::Status put = Put(job, key, std::to_string(number)); !put.ok()) return put;
  v1::StoreReply reply;
  reply.set_number(number);
  return reply;
}

StoreTable::Result StoreTable::Delete(Job& job, const std::string& key) {
  v1::StoreReply reply;
  if (const auto there = job.values.find(key); there != job.values.end()) {
    job.bytes -= key.size() + there->second.size();
    job.values.erase(there);
    reply.set_found(true);
  }
  return reply;
}

std::optional<StoreTable::Result> StoreTable::Get(Job& job, const v1::StoreRequest& request,
                                                  Clock::time_point now, Done& done) {
  const std::uint32_t timeout_ms = request.get().timeout_ms();
  if (timeout_ms > kLongestWaitMs) {
    return absl::InvalidArgumentError(
        fmt::format("timeout_ms={}: expected 0 to {}", timeout_ms, kLongestWaitMs));
  }
  if (const auto there = job.values.find(request.key()); there != job.values.end()) {
    v1::StoreReply reply;
    reply.set_value(there->second);
    reply.set_found(true);
    return reply;
  }
  if (timeout_ms == 0) {
    return absl::DeadlineExceededError(fmt::format("key '{}' is not there", request.key()));
  }
  if (job.waits.size() >= limits_.waits) {
    return absl::ResourceExhaustedError(fmt::format(
        "{} calls of job_epoch {} wait, the most there may be", job.waits.size(), job.job_epoch));
  }
  job.waits.push_back({&job, request.key(), std::move(done), {}});
  const auto wait = std::prev(job.waits.end());
  wait->deadline = deadlines_.emplace(now + std::chrono::milliseconds(timeout_ms), wait);
  return std::nullopt;
}

StoreTable::Done StoreTable::EndWait(WaitList::iterator wait) {
  Done done = std::move(wait->done);
  deadlines_.erase(wait->deadline);
  wait->job->waits.erase(wait);
  return done;
}

std::vector<StoreTable::Done> StoreTable::TakeWaits(Job& job, const std::string& key) {
  std::vector<Done> taken;
  for (auto wait = job.waits.begin(); wait != job.waits.end();) {
    const auto here = wait++;
    if (here->key == key) taken.push_back(EndWait(here));
  }
  return taken;
}

std::vector<StoreTable::Done> StoreTable::Clear(Job& job) {
  std::vector<Done> taken;
  while (!job.waits.empty()) taken.push_back(EndWait(job.waits.begin()));
  job.values.clear();
  job.bytes = 0;
  return taken;
}

std::vector<StoreTable::Done> StoreTable::Advance(Job& job, std::uint32_t current) {
  job.job_epoch = current;
  job.open = false;
  job.members.clear();
  return Clear(job);
}

void StoreTable::ExpireWaits(Clock::time_point now) {
  std::vector<std::pair<std::string, Done>> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto wait = deadlines_.begin()->second;
    std::string key = wait->key;
    expired.emplace_back(std::move(key), EndWait(wait));
  }
  for (auto& [key, done] : expired) {
    done(absl::DeadlineExceededError(fmt::format("key '{}' did not appear in time", key)));
  }
}

std::optional<StoreTable::Clock::time_point> StoreTable::NextDeadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

}  // namespace tundish::rendezvous
