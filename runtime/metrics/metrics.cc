#include "runtime/metrics/metrics.h"

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/text_serializer.h>

#include "runtime/base/check.h"

namespace tundish::metrics {

/// One row of the table: its family, and the series that exist. prometheus-cpp hands out references
/// that die with Remove(), so uses and removals share a lock.
struct Metrics::Row {
  struct Series {
    prometheus::Counter* counter = nullptr;
    prometheus::Gauge* gauge = nullptr;
    prometheus::Histogram* histogram = nullptr;
  };

  Series& At(const LabelValues& values) {
    const auto [it, created] = series.try_emplace(values);
    if (!created) return it->second;
    prometheus::Labels labels;
    for (size_t i = 0; i < values.size(); ++i) labels[definition.labels[i]] = values[i];
    if (counters != nullptr) it->second.counter = &counters->Add(labels);
    if (gauges != nullptr) it->second.gauge = &gauges->Add(labels);
    if (histograms != nullptr) {
      it->second.histogram = &histograms->Add(labels, definition.buckets);
    }
    return it->second;
  }

  std::map<LabelValues, Series>::iterator Erase(std::map<LabelValues, Series>::iterator it) {
    if (counters != nullptr) counters->Remove(it->second.counter);
    if (gauges != nullptr) gauges->Remove(it->second.gauge);
    if (histograms != nullptr) histograms->Remove(it->second.histogram);
    return series.erase(it);
  }

  Definition definition;
  std::mutex mutex;
  std::map<LabelValues, Series> series;
  // One of the three; owned by the registry.
  prometheus::Family<prometheus::Counter>* counters = nullptr;
  prometheus::Family<prometheus::Gauge>* gauges = nullptr;
  prometheus::Family<prometheus::Histogram>* histograms = nullptr;
};

Metrics::Metrics(std::vector<Definition> table)
    : registry_(std::make_shared<prometheus::Registry>()) {
  for (Definition& definition : table) {
    auto row = std::make_unique<Row>();
    row->definition = std::move(definition);
    const Definition& d = row->definition;
    TUNDISH_CHECK(d.kind == Kind::kHistogram || d.buckets.empty());
    switch (d.kind) {
      case Kind::kCounter:
        row->counters = &prometheus::BuildCounter().Name(d.name).Help(d.help).Register(*registry_);
        break;
      case Kind::kGauge:
        row->gauges = &prometheus::BuildGauge().Name(d.name).Help(d.help).Register(*registry_);
        break;
      case Kind::kHistogram:
        row->histograms =
            &prometheus::BuildHistogram().Name(d.name).Help(d.help).Register(*registry_);
        break;
    }
    if (d.labels.empty()) row->At({});
    rows_.push_back(std::move(row));
  }
}

Metrics::~Metrics() = default;

Metrics::Row& Metrics::Find(size_t metric, Kind kind, const LabelValues& labels) {
  TUNDISH_CHECK(metric < rows_.size());
  Row& row = *rows_[metric];
  TUNDISH_CHECK(row.definition.kind == kind);
  TUNDISH_CHECK(row.definition.labels.size() == labels.size());
  return row;
}

void Metrics::Add(size_t metric, const LabelValues& labels, double by) {
  Row& row = Find(metric, Kind::kCounter, labels);
  std::lock_guard lock(row.mutex);
  row.At(labels).counter->Increment(by);
}

void Metrics::RaiseTo(size_t metric, double total, const LabelValues& labels) {
  Row& row = Find(metric, Kind::kCounter, labels);
  std::lock_guard lock(row.mutex);
  prometheus::Counter& counter = *row.At(labels).counter;
  if (const double more = total - counter.Value(); more > 0) counter.Increment(more);
}

void Metrics::Set(size_t metric, double value, const LabelValues& labels) {
  Row& row = Find(metric, Kind::kGauge, labels);
  std::lock_guard lock(row.mutex);
  row.At(labels).gauge->Set(value);
}

void Metrics::Observe(size_t metric, double value, const LabelValues& labels) {
  Row& row = Find(metric, Kind::kHistogram, labels);
  std::lock_guard lock(row.mutex);
  row.At(labels).histogram->Observe(value);
}

void Metrics::Remove(size_t metric, const LabelValues& labels) {
  TUNDISH_CHECK(metric < rows_.size());
  Row& row = *rows_[metric];
  std::lock_guard lock(row.mutex);
  if (const auto it = row.series.find(labels); it != row.series.end()) row.Erase(it);
}

void Metrics::RemoveWhere(std::string_view label, std::string_view value) {
  for (const auto& row : rows_) {
    std::lock_guard lock(row->mutex);
    for (size_t i = 0; i < row->definition.labels.size(); ++i) {
      if (row->definition.labels[i] != label) continue;
      for (auto it = row->series.begin(); it != row->series.end();) {
        it = it->first[i] == value ? row->Erase(it) : std::next(it);
      }
    }
  }
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace tundish::metrics
