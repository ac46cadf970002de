#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tundish::data {

/// Memory for `count` floats, aligned to 64 bytes; e.g. page-locked memory of a device's driver.
using AllocatePixels = std::function<std::shared_ptr<float>(size_t count)>;

/// Plain memory.
std::shared_ptr<float> AllocatePlainPixels(size_t count);

/// The pixels of a batch. Their memory goes back to its pool with the last copy of this.
class PixelBuffer {
 public:
  PixelBuffer() = default;
  PixelBuffer(std::shared_ptr<float> memory, size_t size)
      : memory_(std::move(memory)), size_(size) {}

  float* data() { return memory_.get(); }
  const float* data() const { return memory_.get(); }
  const float* begin() const { return data(); }
  const float* end() const { return data() + size_; }
  /// Floats.
  size_t size() const { return size_; }

 private:
  std::shared_ptr<float> memory_;
  size_t size_ = 0;
};

/// Hands out buffers and takes them back, so that batches are not made in fresh pages every time,
/// whose first touch costs more than normalising an image. Thread safe; may go before its buffers.
class PixelPool {
 public:
  explicit PixelPool(AllocatePixels allocate);

  /// A buffer of `size` floats with any contents.
  PixelBuffer Take(size_t size);

 private:
  struct Shelf {
    std::mutex mutex;
    /// Capacity and memory of buffers nobody uses.
    std::vector<std::pair<size_t, std::shared_ptr<float>>> free;
  };

  const AllocatePixels allocate_;
  const std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
};

}  // namespace tundish::data
