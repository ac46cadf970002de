#include "worker/engine/trainer/arrangement.h"

#include <utility>

#include <fmt/core.h>

namespace tundish::trainer {

Arrangement::Arrangement(uint32_t job_epoch, c10::intrusive_ptr<device::EpochStore> store)
    : job_epoch_(job_epoch), store_(std::move(store)) {}

Arrangement::~Arrangement() {
  Drop();
}

std::shared_ptr<device::Communicator> Arrangement::Create(device::Backend& backend,
                                                          const device::GroupOptions& options) {
  ThrowIfAborted();
  // Outside the lock: it talks to the store, and Abort ends that by closing the store.
  return backend.CreateGroup(store_, options);
}

void Arrangement::Form(device::Backend& backend, const Place& place) {
  device::GroupOptions options;
  options.bind_address = place.bind_address;
  options.timeout = place.collective_timeout;
  std::shared_ptr<device::Communicator> row;
  std::shared_ptr<device::Communicator> column;
  if (place.tensor_degree > 1) {
    options.name = fmt::format("row{}", place.dp);
    options.rank = place.tp;
    options.size = place.tensor_degree;
    row = Create(backend, options);
  }
  if (place.data_degree > 1) {
    options.name = fmt::format("column{}", place.tp);
    options.rank = place.dp;
    options.size = place.data_degree;
    column = Create(backend, options);
  }
  {
    const std::lock_guard lock(mutex_);
    row_ = std::move(row);
    column_ = std::move(column);
  }
  // An Abort between creation and the lines above has not seen the groups.
  ThrowIfAborted();
  if (row_) row_->Connect();
  if (column_) column_->Connect();
}

void Arrangement::Abort() noexcept {
  store_->Close();
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (row_) row_->Abort();
  if (column_) column_->Abort();
}

void Arrangement::ThrowIfAborted() const {
  const std::lock_guard lock(mutex_);
  if (aborted_) {
    throw ArrangementStopped(
        fmt::format("the arrangement of job_epoch {} was stopped", job_epoch_));
  }
}

uint64_t Arrangement::collectives() const {
  const std::lock_guard lock(mutex_);
  return (row_ ? row_->begun() : 0) + (column_ ? column_->begun() : 0);
}

void Arrangement::Drop() noexcept {
  Abort();
  std::shared_ptr<device::Communicator> row;
  std::shared_ptr<device::Communicator> column;
  const std::lock_guard lock(mutex_);
  row.swap(row_);
  column.swap(column_);
}

}  // namespace tundish::trainer
