#include "worker/engine/trainer/gradient_reducer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace tundish::trainer {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

class SumHook final : public c10d::CppCommHookInterface<Group> {
 public:
  SumHook(Group group, std::shared_ptr<GradientReducer::OnBucket> on_bucket)
      : CppCommHookInterface(std::move(group)), on_bucket_(std::move(on_bucket)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> tensors{bucket.getBufferRef()};
    const auto start = std::chrono::steady_clock::now();
    auto future = state_->getDefaultBackend()->allreduce(tensors)->getFuture();
    if (*on_bucket_) {
      future->addCallback([told = *on_bucket_, start,
                           bytes = tensors.front().nbytes()](c10::ivalue::Future& /*sum*/) {
        told(bytes, start, std::chrono::steady_clock::now());
      });
    }
    return future;
  }

 private:
  std::shared_ptr<GradientReducer::OnBucket> on_bucket_;
};

// Rebuilding buckets after the first step would change the order of additions after a recovery. The
// flag also keeps the reducer from recording parameters for a rebuild that never comes.
class FrozenReducer final : public c10d::Reducer {
 public:
  FrozenReducer(std::vector<at::Tensor> parameters, std::vector<std::vector<size_t>> buckets,
                const Group& group, int64_t bucket_bytes)
      : Reducer(parameters, buckets, group, std::vector<bool>(parameters.size(), false),
                bucket_bytes, /*find_unused_parameters=*/false,
                /*gradient_as_bucket_view=*/false, {}, bucket_bytes,
                /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                std::vector<int64_t>(buckets.size(), bucket_bytes)) {
    has_rebuilt_bucket_ = true;
  }
};

// Large enough that the fixed cost of an all-reduce does not count, small enough that a model has a
// few of them to overlap with backward.
int64_t BucketBytes(int64_t total_bytes) {
  constexpr int64_t kSmallest = int64_t{1} << 20;
  constexpr int64_t kLargest = int64_t{25} << 20;
  return std::clamp(total_bytes / 4, kSmallest, kLargest);
}

}  // namespace

std::vector<std::vector<size_t>> LayOutBuckets(const std::vector<int64_t>& bytes,
                                               int64_t bucket_bytes) {
  std::vector<std::vector<size_t>> buckets;
  int64_t filled = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    if (buckets.empty() || filled >= (buckets.size() == 1 ? bucket_bytes / 4 : bucket_bytes)) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(i);
    filled += bytes[i];
  }
  return buckets;
}

class GradientReducer::Impl {
 public:
  Impl(std::vector<at::Tensor> parameters, std::vector<std::vector<size_t>> buckets,
       const Group& group, int64_t bucket_bytes)
      : reducer_(std::move(parameters), std::move(buckets), group, bucket_bytes) {
    reducer_.register_comm_hook(std::make_unique<SumHook>(group, on_bucket_));
  }

  const std::shared_ptr<OnBucket> on_bucket_ = std::make_shared<OnBucket>();
  FrozenReducer reducer_;
};

GradientReducer::GradientReducer(std::vector<model::Parameter>& parameters,
                                 device::Communicator& column) {
  std::vector<at::Tensor> values;
  std::vector<int64_t> bytes;
  int64_t total = 0;
  for (const model::Parameter& parameter : parameters) {
    values.push_back(parameter.value);
    bytes.push_back(static_cast<int64_t>(parameter.value.nbytes()));
    total += bytes.back();
  }
  const int64_t bucket_bytes = BucketBytes(total);
  impl_ = std::make_unique<Impl>(std::move(values), LayOutBuckets(bytes, bucket_bytes),
                                 column.group(), bucket_bytes);
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::ArmForLastBackward() {
  impl_->reducer_.prepare_for_forward();
  impl_->reducer_.prepare_for_backward({});
}

void GradientReducer::set_on_bucket(OnBucket on_bucket) {
  *impl_->on_bucket_ = std::move(on_bucket);
}

}  // namespace tundish::trainer
