#include "tests/worker/engine/trainer/memory_store.h"

#include <algorithm>
#include <stdexcept>

namespace tundish::testing {

void MemoryStore::Close() noexcept {
  {
    const std::lock_guard lock(table_->mutex);
    closed_ = true;
  }
  table_->changed.notify_all();
}

void MemoryStore::ThrowIfClosed() const {
  if (closed_) throw std::runtime_error("the store's epoch is over");
}

c10::intrusive_ptr<c10d::Store> MemoryStore::clone() {
  return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
}

void MemoryStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  {
    const std::lock_guard lock(table_->mutex);
    ThrowIfClosed();
    table_->values[key] = value;
  }
  table_->changed.notify_all();
}

std::vector<uint8_t> MemoryStore::get(const std::string& key) {
  wait({key});
  const std::lock_guard lock(table_->mutex);
  return table_->values.at(key);
}

int64_t MemoryStore::add(const std::string& key, int64_t value) {
  const std::lock_guard lock(table_->mutex);
  ThrowIfClosed();
  std::vector<uint8_t>& stored = table_->values[key];
  const int64_t sum =
      (stored.empty() ? 0 : std::stoll(std::string(stored.begin(), stored.end()))) + value;
  const std::string text = std::to_string(sum);
  stored.assign(text.begin(), text.end());
  table_->changed.notify_all();
  return sum;
}

bool MemoryStore::deleteKey(const std::string& key) {
  const std::lock_guard lock(table_->mutex);
  return table_->values.erase(key) > 0;
}

bool MemoryStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(table_->mutex);
  ThrowIfClosed();
  return std::ranges::all_of(keys, [&](const auto& key) { return table_->values.contains(key); });
}

int64_t MemoryStore::getNumKeys() {
  const std::lock_guard lock(table_->mutex);
  return static_cast<int64_t>(table_->values.size());
}

void MemoryStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void MemoryStore::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  std::unique_lock lock(table_->mutex);
  for (const std::string& key : keys) {
    const bool there = table_->changed.wait_for(
        lock, timeout, [&] { return closed_ || table_->values.contains(key); });
    ThrowIfClosed();
    if (!there) throw std::runtime_error("no key '" + key + "' in time");
  }
}

}  // namespace tundish::testing
