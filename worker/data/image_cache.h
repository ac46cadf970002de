#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "worker/data/image.h"

namespace tundish::data {

/// Prepared images by sample index, up to a number of bytes. What is in stays in: data epochs visit
/// every sample once, so throwing out the oldest would throw out what is needed first. Thread safe.
class ImageCache {
 public:
  ImageCache(uint32_t samples, uint64_t capacity_bytes)
      : images_(samples), capacity_bytes_(capacity_bytes) {}

  /// Null when it is not there.
  std::shared_ptr<const Image> Find(uint32_t sample) const {
    const std::lock_guard lock(mutex_);
    return images_[sample];
  }

  /// Keeps `image` if there is room; a sample that is there already stays.
  void Offer(uint32_t sample, std::shared_ptr<const Image> image) {
    const uint64_t bytes = image->pixels.capacity() + sizeof(Image);
    const std::lock_guard lock(mutex_);
    if (images_[sample] != nullptr || bytes > capacity_bytes_ - bytes_) return;
    bytes_ += bytes;
    images_[sample] = std::move(image);
  }

  uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Image>> images_;
  const uint64_t capacity_bytes_;
  uint64_t bytes_ = 0;
};

}  // namespace tundish::data
