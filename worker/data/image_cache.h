#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "worker/data/decode.h"
#include "worker/data/image.h"

namespace tundish::data {

/// A decoded image as the cache keeps it.
struct CachedImage {
  ImageInfo info;
  /// Always whole.
  ImagePart part;
};

/// Decoded images by sample index and denominator, up to a number of bytes. What is in stays in:
/// data epochs visit every sample once, so throwing out the oldest would throw out what is needed
/// first. Thread safe.
class ImageCache {
 public:
  explicit ImageCache(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  /// Null when it is not there.
  std::shared_ptr<const CachedImage> Find(uint32_t sample, int denominator) const {
    const std::shared_lock lock(mutex_);
    const auto found = images_.find(Key(sample, denominator));
    return found == images_.end() ? nullptr : found->second;
  }

  /// The image at whichever denominator is there, the largest first; null when none is.
  std::shared_ptr<const CachedImage> FindAny(uint32_t sample) const {
    const std::shared_lock lock(mutex_);
    for (const int denominator : {1, 2, 4, 8}) {
      const auto found = images_.find(Key(sample, denominator));
      if (found != images_.end()) return found->second;
    }
    return nullptr;
  }

  /// Sets room aside for an image of that many bytes of pixels, if there is some. Followed by Put
  /// or Release.
  bool Reserve(uint64_t pixel_bytes) {
    const std::lock_guard lock(mutex_);
    if (pixel_bytes + kOverhead > capacity_bytes_ - bytes_) return false;
    bytes_ += pixel_bytes + kOverhead;
    return true;
  }

  void Release(uint64_t pixel_bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ -= pixel_bytes + kOverhead;
  }

  /// Keeps `image`, for which Reserve(pixel_bytes) made room; one that is there already stays.
  void Put(uint32_t sample, int denominator, std::shared_ptr<const CachedImage> image,
           uint64_t pixel_bytes) {
    const std::lock_guard lock(mutex_);
    if (!images_.emplace(Key(sample, denominator), std::move(image)).second) {
      bytes_ -= pixel_bytes + kOverhead;
    }
  }

  uint64_t bytes() const {
    const std::shared_lock lock(mutex_);
    return bytes_;
  }

 private:
  /// Of an entry beside its pixels.
  static constexpr uint64_t kOverhead = sizeof(CachedImage) + 64;

  static uint64_t Key(uint32_t sample, int denominator) {
    return uint64_t{sample} * 16 + static_cast<uint64_t>(denominator);
  }

  mutable std::shared_mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const CachedImage>> images_;
  const uint64_t capacity_bytes_;
  uint64_t bytes_ = 0;
};

}  // namespace tundish::data
