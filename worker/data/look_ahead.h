#pragma once

namespace tundish::data {

/// How many batches a loader makes ahead. Steady work needs few; it grows when the reader waits
/// although the threads had stood idle before, since then they could have worked ahead of a burst
/// (slow files, an evaluation, a checkpoint); it shrinks again when the batches pile up unused.
class LookAhead {
 public:
  /// 1 ≤ least ≤ most.
  LookAhead(int least, int most) : least_(least), most_(most), batches_(least) {}

  int batches() const { return batches_; }

  /// A batch is asked for. `ready`: batches that are complete. `threads_idled`: since the last call
  /// some thread had nothing to do because the look-ahead was used up.
  void OnNext(int ready, bool threads_idled) {
    if (ready == 0) {
      unused_ = 0;
      if (threads_idled && batches_ < most_) ++batches_;
      return;
    }
    unused_ = ready >= batches_ ? unused_ + 1 : 0;
    if (unused_ < kUnusedBeforeShrink || batches_ == least_) return;
    --batches_;
    unused_ = 0;
  }

 private:
  static constexpr int kUnusedBeforeShrink = 64;

  const int least_;
  const int most_;
  int batches_;
  int unused_ = 0;
};

}  // namespace tundish::data
