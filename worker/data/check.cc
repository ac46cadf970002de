#include "worker/data/check.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "runtime/base/sha256.h"
#include "worker/data/dataset.h"
#include "worker/data/decode.h"
#include "worker/data/image_pipeline.h"

namespace tundish::data {

std::string_view BadFileKind(std::string_view reason) {
  static constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"empty file", "empty"},    {"truncated", "truncated"},
      {"unreadable ", "damaged"}, {"not an image", "not_an_image"},
      {"a GIF", "unsupported"},   {"an animated", "unsupported"},
      {"too large", "too_large"}, {"has no pixels", "damaged"},
  };
  for (const auto& [start, kind] : kKinds) {
    if (reason.starts_with(start)) return kind;
  }
  return "unreadable";
}

namespace {

/// The format that a file's name promises; empty when it promises none.
std::string_view FormatOfName(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kEndings[] = {
      {".jpg", "JPEG"},  {".jpeg", "JPEG"}, {".png", "PNG"},   {".tif", "TIFF"},
      {".tiff", "TIFF"}, {".bmp", "BMP"},   {".webp", "WebP"},
  };
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::string ending(name.substr(dot));
  std::ranges::transform(ending, ending.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  for (const auto& [end, format] : kEndings) {
    if (ending == end) return format;
  }
  return {};
}

constexpr size_t kNamed = 3;  // Examples named in a sentence.

/// What opening one image showed.
struct Finding {
  /// Empty when it can be used.
  std::string reason;
  Sha256Digest content{};
  int width = 0;
  int height = 0;
  bool grey = false;
  size_t bytes = 0;
  std::string_view format;

  bool usable() const { return reason.empty(); }
  int shorter_side() const { return std::min(width, height); }
};

Finding Inspect(const Sample& sample) {
  const auto wait = [] {
    // Nobody interrupts a check but by ending its process, so this is a plain pause.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return true;
  };
  Finding finding;
  const absl::StatusOr<std::string> bytes = ReadFilePatiently(sample.file, wait);
  if (!bytes.ok()) {
    finding.reason = std::string(bytes.status().message());
    return finding;
  }
  // A JPEG's every coefficient is read, damage shows there; pixels are made at an eighth.
  const absl::StatusOr<ImagePart> image =
      DecodePart(*bytes, {.channels = 3, .keep_grey = true}, [&finding](const ImageInfo& info) {
        finding.width = info.width;
        finding.height = info.height;
        finding.grey = info.channels == 1;
        const int denominator = info.reducible ? 8 : 1;
        return View{
            denominator,
            {.width = info.reduced_width(denominator), .height = info.reduced_height(denominator)}};
      });
  if (!image.ok()) {
    finding.reason = std::string(image.status().message());
    return finding;
  }
  finding.bytes = bytes->size();
  finding.format = ImageFormat(*bytes);
  Sha256 sha;
  sha.Add(*bytes);
  finding.content = sha.Finish();
  return finding;
}

/// One finding per sample, train before validation.
std::vector<Finding> InspectAll(const std::vector<const Sample*>& samples, int threads) {
  std::vector<Finding> findings(samples.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < samples.size(); i = next++) {
      findings[i] = Inspect(*samples[i]);
    }
  };
  std::vector<std::jthread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  pool.clear();  // Joins.
  return findings;
}

std::vector<const Sample*> AllSamples(const Dataset& dataset) {
  std::vector<const Sample*> samples;
  for (const Sample& sample : dataset.train()) samples.push_back(&sample);
  for (const Sample& sample : dataset.validation()) samples.push_back(&sample);
  return samples;
}

/// "'a.png': empty file; 'b.png': not an image … and 7 more".
std::string NameFirst(const std::vector<v1::BadFile>& bad) {
  std::string text;
  for (size_t i = 0; i < std::min(bad.size(), kNamed); ++i) {
    if (i > 0) text += "; ";
    text += fmt::format("'{}': {}", bad[i].path(), bad[i].reason());
  }
  if (bad.size() > kNamed) text += fmt::format("; and {} more", bad.size() - kNamed);
  return text;
}

absl::Status ApplyPolicy(const v1::DataSpec& spec, const std::vector<v1::BadFile>& bad,
                         const std::map<std::string, uint32_t>& kinds, size_t total) {
  if (bad.empty()) return absl::OkStatus();
  std::vector<std::string> counts;
  for (const auto& [kind, count] : kinds) counts.push_back(fmt::format("{} {}", count, kind));
  const std::string what = fmt::format("{} of {} images cannot be used ({}): {}", bad.size(), total,
                                       fmt::join(counts, ", "), NameFirst(bad));
  if (spec.bad_files() != v1::SKIP) {
    return absl::InvalidArgumentError(
        fmt::format("{}. Mend or remove them, or set data.bad_files to SKIP", what));
  }
  const double most = spec.has_max_bad_fraction() ? spec.max_bad_fraction() : 0.05;
  if (static_cast<double>(bad.size()) > most * static_cast<double>(total)) {
    return absl::InvalidArgumentError(fmt::format(
        "{}. That is more than data.max_bad_fraction {} allows; mend or remove them", what, most));
  }
  if (bad.size() > kMaxBadFiles) {
    return absl::InvalidArgumentError(
        fmt::format("{}. At most {} can be left out; mend or remove them", what, kMaxBadFiles));
  }
  return absl::OkStatus();
}

/// Fills the report's duplicates and warns of them.
void ReportDuplicates(const std::vector<const Sample*>& samples,
                      const std::vector<Finding>& findings, size_t train_count,
                      v1::DataReport& report) {
  std::map<Sha256Digest, const Sample*> first_with;
  std::string across;
  std::string contradiction;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!findings[i].reason.empty()) continue;
    const bool in_train = i < train_count;
    const auto [found, is_new] =
        first_with.emplace(findings[i].content, in_train ? samples[i] : nullptr);
    if (is_new || found->second == nullptr) continue;
    if (found->second->label != samples[i]->label && contradiction.empty()) {
      contradiction = fmt::format("'{}' and '{}' have equal content and different labels",
                                  found->second->name, samples[i]->name);
    }
    if (in_train) continue;
    report.set_duplicates_across_split(report.duplicates_across_split() + 1);
    if (across.empty())
      across = fmt::format("'{}' and '{}'", found->second->name, samples[i]->name);
  }
  if (!across.empty()) {
    report.add_warnings(
        fmt::format("{} validation images occur in train, too, so validation flatters the model; "
                    "the first are {}",
                    report.duplicates_across_split(), across));
  }
  if (!contradiction.empty()) report.add_warnings(contradiction);
}

void WarnOfCounts(const v1::JobSpec& spec, v1::DataReport& report) {
  constexpr double kImbalance = 10;
  constexpr uint32_t kFewToValidate = 5;
  const auto& counts = report.counts();
  const auto [least, most] = std::minmax_element(
      counts.begin(), counts.end(),
      [](const v1::ClassCount& a, const v1::ClassCount& b) { return a.train() < b.train(); });
  const auto weighting = spec.training().class_weights();
  const bool weighted = weighting == v1::INVERSE || weighting == v1::SQRT_INVERSE;
  if (!weighted && most->train() >= kImbalance * least->train()) {
    report.add_warnings(
        fmt::format("class '{}' has {} training images and '{}' {}; consider "
                    "training.class_weights INVERSE or SQRT_INVERSE",
                    most->name(), most->train(), least->name(), least->train()));
  }
  for (const v1::ClassCount& count : counts) {
    if (report.validation_images() == 0 || count.validation() >= kFewToValidate) continue;
    report.add_warnings(
        fmt::format("class '{}' has only {} validation images; its recall will be "
                    "coarse",
                    count.name(), count.validation()));
  }
}

void WarnOfSizes(const std::vector<Finding>& findings, int image_size, v1::DataReport& report) {
  const auto small = std::ranges::count_if(findings, [&](const Finding& finding) {
    return finding.usable() && finding.shorter_side() < image_size;
  });
  if (small > 0) {
    report.add_warnings(fmt::format(
        "{} images are smaller than model.image_size {} and get enlarged", small, image_size));
  }
}

/// The most frequent first; equal ones by name.
void AddCounts(const std::map<std::string, uint32_t>& counts,
               google::protobuf::RepeatedPtrField<v1::NamedCount>& out) {
  std::vector<std::pair<std::string, uint32_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, std::greater<>(), &std::pair<std::string, uint32_t>::second);
  for (const auto& [name, count] : sorted) {
    v1::NamedCount& added = *out.Add();
    added.set_name(name);
    added.set_count(count);
  }
}

void ReportForms(const std::vector<const Sample*>& samples, const std::vector<Finding>& findings,
                 v1::DataReport& report) {
  std::map<std::string, uint32_t> forms;
  std::vector<int> sides;
  double bytes = 0;
  double most_pixels = 0;
  size_t misnamed = 0;
  std::string first_misnamed;
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    if (!finding.usable()) continue;
    ++forms[fmt::format("{} {}", finding.format, finding.grey ? "grey" : "colour")];
    sides.push_back(finding.shorter_side());
    bytes += static_cast<double>(finding.bytes);
    most_pixels = std::max(most_pixels, static_cast<double>(finding.width) * finding.height);
    const std::string_view named = FormatOfName(samples[i]->name);
    if (named.empty() || named == finding.format) continue;
    if (misnamed++ == 0) {
      first_misnamed = fmt::format("'{}' holds a {}", samples[i]->name, finding.format);
    }
  }
  AddCounts(forms, *report.mutable_forms());
  if (misnamed > 0) {
    report.add_warnings(fmt::format(
        "{} files hold another format than their names say and are decoded by content; the first: "
        "{}",
        misnamed, first_misnamed));
  }
  if (sides.empty()) return;
  std::ranges::sort(sides);
  v1::ImageSizes& sizes = *report.mutable_sizes();
  sizes.set_least_side(static_cast<uint32_t>(sides.front()));
  sizes.set_median_side(static_cast<uint32_t>(sides[sides.size() / 2]));
  sizes.set_most_side(static_cast<uint32_t>(sides.back()));
  sizes.set_most_pixels(most_pixels);
  report.set_total_bytes(bytes);
}

void FillCounts(const Dataset& dataset, v1::DataReport& report) {
  const std::vector<uint32_t> train = dataset.ClassCounts(Split::kTrain);
  const std::vector<uint32_t> validation = dataset.ClassCounts(Split::kValidation);
  for (size_t c = 0; c < dataset.classes().size(); ++c) {
    report.add_classes(dataset.classes()[c]);
    v1::ClassCount& count = *report.add_counts();
    count.set_name(dataset.classes()[c]);
    count.set_train(train[c]);
    count.set_validation(validation[c]);
  }
  report.set_train_images(static_cast<uint32_t>(dataset.train().size()));
  report.set_validation_images(static_cast<uint32_t>(dataset.validation().size()));
  report.set_manifest_hash(dataset.ManifestHash());
  for (const std::string& warning : dataset.warnings()) report.add_warnings(warning);
  const auto [least, most] = std::ranges::minmax_element(train);
  report.set_imbalance(static_cast<double>(*most) / std::max(1U, *least));
}

}  // namespace

absl::StatusOr<v1::DataReport> CheckData(const v1::JobSpec& spec, int threads) {
  const absl::StatusOr<Dataset> all = Dataset::Scan(spec.data());
  if (!all.ok()) return all.status();
  const int image_size = spec.model().image_size() > 0 ? spec.model().image_size() : 224;
  const std::vector<const Sample*> samples = AllSamples(*all);
  const std::vector<Finding> findings = InspectAll(samples, threads);
  std::vector<v1::BadFile> bad;
  std::map<std::string, uint32_t> kinds;
  std::set<std::string> excluded;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (findings[i].reason.empty()) continue;
    bad.emplace_back();
    bad.back().set_path(samples[i]->name);
    bad.back().set_reason(findings[i].reason);
    bad.back().set_kind(std::string(BadFileKind(findings[i].reason)));
    ++kinds[bad.back().kind()];
    excluded.insert(samples[i]->name);
  }
  if (absl::Status allowed = ApplyPolicy(spec.data(), bad, kinds, samples.size()); !allowed.ok()) {
    return allowed;
  }
  // Scanned again, so that the report shows exactly what the ranks will find.
  const absl::StatusOr<Dataset> usable = Dataset::Scan(spec.data(), excluded);
  if (!usable.ok()) return usable.status();
  if (usable->train().size() < spec.training().global_batch()) {
    return absl::InvalidArgumentError(
        fmt::format("the training split has {} images, fewer than training.global_batch {}; lower "
                    "it or add images",
                    usable->train().size(), spec.training().global_batch()));
  }
  v1::DataReport report;
  FillCounts(*usable, report);
  for (v1::BadFile& file : bad) *report.add_bad_files() = std::move(file);
  report.set_bad_file_count(static_cast<uint32_t>(bad.size()));
  AddCounts(kinds, *report.mutable_bad_kinds());
  ReportForms(samples, findings, report);
  ReportDuplicates(samples, findings, all->train().size(), report);
  WarnOfCounts(spec, report);
  WarnOfSizes(findings, image_size, report);
  return report;
}

}  // namespace tundish::data
