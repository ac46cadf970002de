#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <prometheus/registry.h>

namespace tundish::metrics {

enum class Kind { kCounter, kGauge, kHistogram };

/// One row of a program's metric table: everything a reader of /metrics can be told about it.
struct Definition {
  Kind kind;
  /// Starts with tundish_, base units (seconds, bytes), counters end with _total.
  std::string name;
  std::string help;
  /// Label names; values are given in this order. Their values must be bounded by live entities.
  std::vector<std::string> labels = {};
  /// Histograms only: ascending upper bounds.
  std::vector<double> buckets = {};
};

/// Values of a metric's labels, in the order of its definition.
using LabelValues = std::vector<std::string>;

/// The metrics of one process. A program declares its table once and names rows by their index,
/// usually an enum that lists them in the same order:
///
///     enum Metric : size_t { kWorkers, kExits };
///     Metrics metrics({{Kind::kGauge, "tundish_agent_workers", "Rank processes alive."},
///                      {Kind::kCounter, "tundish_agent_worker_exits_total", "…", {"cause"}}});
///     metrics.Add(kExits, {"finished"});
///
/// Using a row by another kind or with another number of labels is a broken invariant, not an
/// error. Rows without labels show their zero from the start. Thread-safe.
class Metrics {
 public:
  explicit Metrics(std::vector<Definition> table);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Counter: adds `by` ≥ 0.
  void Add(size_t metric, const LabelValues& labels = {}, double by = 1);

  /// Counter: raises it to `total`, kept elsewhere (the kernel's CPU time); never lowers it.
  void RaiseTo(size_t metric, double total, const LabelValues& labels = {});

  /// Gauge: shows `value`.
  void Set(size_t metric, double value, const LabelValues& labels = {});

  /// Histogram: counts `value`.
  void Observe(size_t metric, double value, const LabelValues& labels = {});

  /// Forgets one series; it is gone from the next Text() on. No effect if it does not exist.
  void Remove(size_t metric, const LabelValues& labels);

  /// Forgets every series of every metric whose label `label` has `value`: those of an ended job.
  void RemoveWhere(std::string_view label, std::string_view value);

  /// Everything in Prometheus' text format 0.0.4 (content type kTextContentType).
  std::string Text() const;

 private:
  struct Row;

  Row& Find(size_t metric, Kind kind, const LabelValues& labels);

  std::shared_ptr<prometheus::Registry> registry_;
  std::vector<std::unique_ptr<Row>> rows_;
};

inline constexpr std::string_view kTextContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace tundish::metrics
