#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "tundish/v1/job.pb.h"

namespace tundish::data {

enum class Split : uint8_t { kTrain, kValidation };

struct Sample {
  /// Path below the source: as in the manifest's `path` column, or "<class>/…/<file>" (with given
  /// folders "train/<class>/…"). Valid UTF-8. Identifies the sample in reports, hashes and logs.
  std::string name;
  /// Path to open.
  std::string file;
  /// Images of one group share a split; empty: the image is its own group.
  std::string group;
  /// Index into `Dataset::classes()`.
  int32_t label = 0;
  /// > 0; 1 unless the manifest says otherwise.
  float weight = 1.0F;
};

/// The samples of a source, their labels and their split. Immutable after Scan; thread safe.
///
/// Order: samples of each split are sorted by `name` (bytewise), so the order depends on the names
/// only, not on the file system or the order of rows.
///
/// Split, where the source does not give it: an image is held out when the hash of (split_seed, its
/// group, or its name where it has no group) falls below validation_fraction. The decision looks at
/// that image alone: adding or removing others never moves it, a group never straddles, and each
/// class gets its share in expectation, with the same threshold for every class (a threshold per
/// class would tear groups that hold several classes apart).
///
/// A small class may get nothing that way. Then the image (or group) of it with the lowest hash is
/// held out, too, unless that would take the last training image of some class; and a class that is
/// held out whole gives the one with the highest hash to training. Each such choice is a warning.
/// No rule can both do that and never move an image, for one that never does looks at each image
/// alone. What this one may do when images are added to a class that had none held out by its hash:
/// give a held-out image back to training, as a new one with a lower hash takes its place. It
/// never moves a training image to validation, where it would flatter a model that has seen it
/// (images in groups of several classes apart).
class Dataset {
 public:
  /// Lists the source of `spec` (validated: exactly one source, absolute path, fraction in range).
  /// Opens no image. Samples whose `name` is in `excluded` are left out, as DataReport.bad_files of
  /// the data check decided.
  ///
  /// Errors, each one sentence with the value and what would be right: NotFound (source missing or
  /// not readable); InvalidArgument (no class folder, empty class, label outside `classes`, a class
  /// held in only one of train and validation, unreadable manifest row with its line number, path
  /// listed twice, group in both splits, a name that is not UTF-8, more than 2^24 samples).
  static absl::StatusOr<Dataset> Scan(const v1::DataSpec& spec,
                                      const std::set<std::string>& excluded = {});

  /// Class names in logit order: spec.classes, or the sorted names found.
  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<Sample>& train() const { return train_; }
  /// Empty only when validation_fraction is 0 and the source gives no split.
  const std::vector<Sample>& validation() const { return validation_; }
  const std::vector<Sample>& samples(Split split) const {
    return split == Split::kTrain ? train_ : validation_;
  }
  /// Images per class of a split, in logit order.
  std::vector<uint32_t> ClassCounts(Split split) const;
  /// Loss weight per class from the training counts, as v1::ClassWeighting defines them.
  std::vector<float> ClassWeights(v1::ClassWeighting weighting) const;
  /// How often each training image is to be seen, relative to the others; empty for UNIFORM.
  std::vector<double> SamplingWeights(v1::Sampling sampling) const;
  /// Lower-case hex SHA-256 over classes and every sample's name, label, split and weight; not over
  /// file contents, and not over where the source lies, so that hosts with other mounts agree.
  const std::string& ManifestHash() const { return manifest_hash_; }
  /// Things the scan passed over (files beside the class folders …), one sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  friend class DatasetBuilder;
  Dataset() = default;

  std::vector<std::string> classes_;
  std::vector<Sample> train_;
  std::vector<Sample> validation_;
  std::string manifest_hash_;
  std::vector<std::string> warnings_;
};

/// Hash of a split key (group, else name) in [0, 1); below validation_fraction it is held out.
double SplitHash(uint64_t split_seed, std::string_view key);

}  // namespace tundish::data
