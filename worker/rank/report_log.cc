#include "worker/rank/report_log.h"

#include <algorithm>
#include <utility>

namespace tundish::rank {

void ReportLog::Append(v1::RankReport report) {
  if (reports_.size() >= most_) GiveUpOne();
  report.set_number(++last_number_);
  reports_.push_back(std::move(report));
}

void ReportLog::AckUpTo(uint64_t number) {
  while (!reports_.empty() && reports_.front().number() <= number) {
    reports_.pop_front();
    if (next_ > 0) --next_;
  }
}

const v1::RankReport* ReportLog::TakeNext() {
  if (next_ == reports_.size()) return nullptr;
  v1::RankReport& report = reports_[next_];
  report.set_after(next_ > 0 ? reports_[next_ - 1].number() : 0);
  ++next_;
  return &report;
}

void ReportLog::GiveUpOne() {
  auto victim = std::ranges::find_if(
      reports_, [](const v1::RankReport& report) { return report.has_step() || report.has_log(); });
  if (victim == reports_.end()) victim = reports_.begin();
  if (static_cast<size_t>(victim - reports_.begin()) < next_) --next_;
  reports_.erase(victim);
  ++given_up_;
}

}  // namespace tundish::rank
