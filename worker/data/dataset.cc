#include "worker/data/dataset.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include <absl/status/status.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "runtime/base/sha256.h"
#include "worker/data/source.h"

namespace tundish::data {
namespace {

constexpr size_t kMaxClasses = size_t{1} << 16;

/// "a, b, c and 7 more".
std::string ListNames(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  const size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

std::string Where(const Entry& entry) {
  return entry.line == 0 ? fmt::format("'{}'", entry.name)
                         : fmt::format("'{}' (line {})", entry.name, entry.line);
}

}  // namespace

double SplitHash(uint64_t split_seed, std::string_view key) {
  Sha256 sha;
  sha.AddField("tundish split 1");
  sha.AddNumber(split_seed);
  sha.AddField(key);
  const Sha256Digest digest = sha.Finish();
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits = bits << 8 | digest[i];
  // 53 bits, so that the conversion is exact and equal everywhere.
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// Turns a listing into a Dataset, step by step; each step leaves one clear error.
class DatasetBuilder {
 public:
  DatasetBuilder(const v1::DataSpec& spec, Listing listing)
      : spec_(spec), listing_(std::move(listing)) {}

  absl::StatusOr<Dataset> Build(const std::set<std::string>& excluded) {
    dataset_.warnings_ = std::move(listing_.warnings);
    std::erase_if(listing_.entries, [&](const Entry& e) { return excluded.contains(e.name); });
    std::ranges::sort(listing_.entries, {}, &Entry::name);
    for (const auto step :
         {&DatasetBuilder::CheckNames, &DatasetBuilder::ChooseClasses, &DatasetBuilder::ChooseSplit,
          &DatasetBuilder::FillSamples, &DatasetBuilder::CheckClassesInSplits}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    dataset_.manifest_hash_ = Hash();
    return std::move(dataset_);
  }

 private:
  using Key = std::pair<double, std::string>;

  absl::Status CheckNames() {
    const auto& entries = listing_.entries;
    if (entries.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("data source '{}' names no image that can be used", Source()));
    }
    const auto twice = std::ranges::adjacent_find(entries, {}, &Entry::name);
    if (twice == entries.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("manifest '{}' lists the path '{}' twice, on lines {} and {}; list each image "
                    "once (use the column 'weight' to make it count more)",
                    Source(), twice->name, std::min(twice->line, (twice + 1)->line),
                    std::max(twice->line, (twice + 1)->line)));
  }

  absl::Status ChooseClasses() {
    std::set<std::string> found(listing_.class_folders.begin(), listing_.class_folders.end());
    for (const Entry& entry : listing_.entries) found.insert(entry.label);
    if (spec_.classes().empty()) {
      dataset_.classes_.assign(found.begin(), found.end());
    } else {
      dataset_.classes_.assign(spec_.classes().begin(), spec_.classes().end());
    }
    const std::vector<std::string>& classes = dataset_.classes_;
    if (classes.size() < 2 || classes.size() > kMaxClasses) {
      return absl::InvalidArgumentError(
          fmt::format("the data has {} classes ({}); expected 2 to {}", classes.size(),
                      ListNames(classes), kMaxClasses));
    }
    for (size_t i = 0; i < classes.size(); ++i) {
      if (!index_of_.emplace(classes[i], static_cast<int32_t>(i)).second) {
        return absl::InvalidArgumentError(
            fmt::format("data.classes names '{}' twice; expected each class once", classes[i]));
      }
    }
    for (const Entry& entry : listing_.entries) {
      if (index_of_.contains(entry.label)) continue;
      return absl::InvalidArgumentError(
          fmt::format("label '{}' of {} is not in data.classes; expected one of {}", entry.label,
                      Where(entry), ListNames(classes)));
    }
    return absl::OkStatus();
  }

  absl::Status ChooseSplit() {
    // Members of a group without a split of their own follow the group's given split.
    std::unordered_map<std::string, const Entry*> given;
    for (const Entry& entry : listing_.entries) {
      if (!entry.split || entry.group.empty()) continue;
      const Entry& first = *given.emplace(entry.group, &entry).first->second;
      if (first.split == entry.split) continue;
      return absl::InvalidArgumentError(
          fmt::format("group '{}' is in both splits: {} and {}; give all its images one split",
                      entry.group, Where(first), Where(entry)));
    }
    const double fraction = spec_.has_validation_fraction() ? spec_.validation_fraction() : 0.2;
    for (Entry& entry : listing_.entries) {
      if (entry.split) continue;
      if (const auto found = given.find(entry.group);
          !entry.group.empty() && found != given.end()) {
        entry.split = found->second->split;
        continue;
      }
      const std::string& key = entry.group.empty() ? entry.name : entry.group;
      const double hash = SplitHash(spec_.split_seed(), key);
      entry.split = hash < fraction ? Split::kValidation : Split::kTrain;
      Unit& unit = hashed_[{hash, key}];
      unit.split = *entry.split;
      unit.entries.push_back(&entry);
    }
    if (fraction > 0) FillSmallClasses();
    return absl::OkStatus();
  }

  /// Images that the hash moves together: a group, or one image.
  struct Unit {
    Split split = Split::kTrain;
    std::vector<Entry*> entries;
  };

  /// Images per class in a split.
  std::vector<uint32_t> Count(Split split) const {
    std::vector<uint32_t> counts(dataset_.classes_.size());
    for (const Entry& entry : listing_.entries) {
      counts[index_of_.at(entry.label)] += entry.split == split ? 1 : 0;
    }
    return counts;
  }

  void FillSmallClasses() {
    std::vector<std::pair<const Key, Unit>*> by_hash;
    for (auto& unit : hashed_) by_hash.push_back(&unit);
    for (const Split lacking : {Split::kValidation, Split::kTrain}) {
      std::vector<uint32_t> have = Count(lacking);
      std::vector<uint32_t> source =
          Count(lacking == Split::kTrain ? Split::kValidation : Split::kTrain);
      for (size_t label = 0; label < have.size(); ++label) {
        if (have[label] == 0 && source[label] > 0) MoveOne(label, lacking, by_hash, have, source);
      }
      std::ranges::reverse(by_hash);  // Training takes the highest.
    }
  }

  /// Moves the first unit of the class to the split that lacks the class, if every class it holds
  /// keeps an image where it was.
  void MoveOne(size_t label, Split to, const std::vector<std::pair<const Key, Unit>*>& by_hash,
               std::vector<uint32_t>& have, std::vector<uint32_t>& source) {
    for (auto* const candidate : by_hash) {
      Unit& unit = candidate->second;
      if (unit.split == to) continue;
      std::unordered_map<size_t, uint32_t> holds;
      for (const Entry* entry : unit.entries) ++holds[index_of_.at(entry->label)];
      const bool leaves_some = std::ranges::all_of(
          holds, [&](const auto& held) { return source[held.first] > held.second; });
      if (!holds.contains(label) || !leaves_some) continue;
      unit.split = to;
      for (Entry* entry : unit.entries) entry->split = to;
      for (const auto& [held, count] : holds) {
        have[held] += count;
        source[held] -= count;
      }
      dataset_.warnings_.push_back(fmt::format(
          "chance left class '{}' out of {}; '{}' was put there instead", dataset_.classes_[label],
          to == Split::kTrain ? "training" : "validation", candidate->first.second));
      return;
    }
  }

  absl::Status FillSamples() {
    for (Entry& entry : listing_.entries) {
      auto& samples = entry.split == Split::kTrain ? dataset_.train_ : dataset_.validation_;
      samples.push_back({.name = std::move(entry.name),
                         .file = std::move(entry.file),
                         .group = std::move(entry.group),
                         .label = index_of_.at(entry.label),
                         .weight = entry.weight});
    }
    listing_.entries.clear();
    return absl::OkStatus();
  }

  absl::Status CheckClassesInSplits() {
    const std::vector<uint32_t> train = dataset_.ClassCounts(Split::kTrain);
    const std::vector<uint32_t> validation = dataset_.ClassCounts(Split::kValidation);
    const bool validates = !dataset_.validation_.empty() || spec_.validation_fraction() > 0 ||
                           !spec_.has_validation_fraction();
    for (size_t c = 0; c < train.size(); ++c) {
      const std::string& name = dataset_.classes_[c];
      if (train[c] + validation[c] == 0) {
        return absl::InvalidArgumentError(
            fmt::format("class '{}' has no image; add some or take it out of the classes", name));
      }
      if (train[c] == 0) {
        return absl::InvalidArgumentError(fmt::format(
            "all {} images (or groups) of class '{}' are in the validation split; expected "
            "some in train: add images, or change data.validation_fraction or "
            "data.split_seed",
            validation[c], name));
      }
      if (validation[c] == 0 && validates) {
        return absl::InvalidArgumentError(fmt::format(
            "none of the {} images of class '{}' is in the validation split; expected at "
            "least one: add images, or change data.validation_fraction or "
            "data.split_seed",
            train[c], name));
      }
    }
    return absl::OkStatus();
  }

  std::string Hash() const {
    Sha256 sha;
    sha.AddField("tundish manifest 1");
    sha.AddNumber(dataset_.classes_.size());
    for (const std::string& name : dataset_.classes_) sha.AddField(name);
    for (const auto* samples : {&dataset_.train_, &dataset_.validation_}) {
      sha.AddNumber(samples->size());
      for (const Sample& sample : *samples) {
        sha.AddField(sample.name);
        sha.AddNumber(static_cast<uint64_t>(sample.label));
        sha.AddNumber(std::bit_cast<uint32_t>(sample.weight));
      }
    }
    return ToHex(sha.Finish());
  }

  const std::string& Source() const {
    return spec_.has_folder() ? spec_.folder() : spec_.manifest();
  }

  const v1::DataSpec& spec_;  // Outlives the builder, which lives inside Scan.
  Listing listing_;
  Dataset dataset_;
  std::unordered_map<std::string, int32_t> index_of_;
  /// Units whose split the hash decides, by (hash, key).
  std::map<Key, Unit> hashed_;
};

absl::StatusOr<Dataset> Dataset::Scan(const v1::DataSpec& spec,
                                      const std::set<std::string>& excluded) {
  absl::StatusOr<Listing> listing =
      absl::InvalidArgumentError("the job names no data; expected data.folder or data.manifest");
  if (spec.has_folder()) listing = ListFolder(spec.folder());
  if (spec.has_manifest()) listing = ListManifest(spec.manifest());
  if (!listing.ok()) return listing.status();
  return DatasetBuilder(spec, *std::move(listing)).Build(excluded);
}

std::vector<uint32_t> Dataset::ClassCounts(Split split) const {
  std::vector<uint32_t> counts(classes_.size());
  for (const Sample& sample : samples(split)) ++counts[sample.label];
  return counts;
}

std::vector<float> Dataset::ClassWeights(v1::ClassWeighting weighting) const {
  const std::vector<uint32_t> counts = ClassCounts(Split::kTrain);
  const auto samples = static_cast<double>(train_.size());
  double sum_of_roots = 0;
  for (const uint32_t count : counts) sum_of_roots += std::sqrt(count);
  std::vector<float> weights;
  for (const uint32_t count : counts) {
    double weight = 1;
    if (weighting == v1::INVERSE) weight = samples / (static_cast<double>(counts.size()) * count);
    // Sum over classes of count · weight is then `samples`: mean 1.
    if (weighting == v1::SQRT_INVERSE) weight = samples / (std::sqrt(count) * sum_of_roots);
    weights.push_back(static_cast<float>(weight));
  }
  return weights;
}

std::vector<double> Dataset::SamplingWeights(v1::Sampling sampling) const {
  std::vector<double> weights;
  if (sampling == v1::SAMPLING_UNSPECIFIED || sampling == v1::UNIFORM) return weights;
  const std::vector<uint32_t> counts = ClassCounts(Split::kTrain);
  for (const Sample& sample : train_) {
    const double count = counts[sample.label];
    double weight = sample.weight;
    if (sampling == v1::CLASS_BALANCED) weight = 1 / count;
    if (sampling == v1::CLASS_SQRT) weight = 1 / std::sqrt(count);
    weights.push_back(weight);
  }
  return weights;
}

}  // namespace tundish::data
