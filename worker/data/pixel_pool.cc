#include "worker/data/pixel_pool.h"

#include <cstdlib>
#include <new>

namespace tundish::data {
namespace {

// More than a loader has in hand at once; the rest is given back to the system.
constexpr size_t kMostKept = 32;

}  // namespace

std::shared_ptr<float> AllocatePlainPixels(size_t count) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = (count * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  auto* memory = static_cast<float*>(std::aligned_alloc(kAlignment, bytes));
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](float* pixels) { std::free(pixels); }};
}

PixelPool::PixelPool(AllocatePixels allocate)
    : allocate_(allocate ? std::move(allocate) : AllocatePlainPixels) {}

PixelBuffer PixelPool::Take(size_t size) {
  if (size == 0) return {};
  std::pair<size_t, std::shared_ptr<float>> taken;
  {
    const std::lock_guard lock(shelf_->mutex);
    auto& free = shelf_->free;
    while (!free.empty() && taken.second == nullptr) {
      // Batches of a run have one size; what does not fit is from another run.
      if (free.back().first >= size) taken = std::move(free.back());
      free.pop_back();
    }
  }
  if (taken.second == nullptr) taken = {size, allocate_(size)};
  float* pixels = taken.second.get();
  // Holds the memory until the last user is gone, then lays it back.
  const auto give_back = [shelf = std::weak_ptr<Shelf>(shelf_),
                          taken = std::move(taken)](float*) mutable {
    const std::shared_ptr<Shelf> alive = shelf.lock();
    if (alive == nullptr) return;
    const std::lock_guard lock(alive->mutex);
    if (alive->free.size() < kMostKept) alive->free.push_back(std::move(taken));
  };
  return {std::shared_ptr<float>(pixels, give_back), size};
}

}  // namespace tundish::data
