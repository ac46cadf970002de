#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/engine/device/epoch_store.h"

namespace tundish::testing {

/// What the coordinator's key-value table is to real ranks. Thread-safe.
struct SharedTable {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::vector<uint8_t>> values;
};

/// One thread's view of a table, closed on its own.
class MemoryStore final : public device::EpochStore {
 public:
  explicit MemoryStore(std::shared_ptr<SharedTable> table) : table_(std::move(table)) {}

  void Close() noexcept override;

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  void ThrowIfClosed() const;

  const std::shared_ptr<SharedTable> table_;
  bool closed_ = false;  // Guarded by the table's mutex.
};

}  // namespace tundish::testing
