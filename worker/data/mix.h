#pragma once

#include <cstdint>

namespace tundish::data {

/// Which training images are mixed with another one, and how.
struct MixOptions {
  double mixup_alpha = 0;   ///< Shares from Beta(a, a); 0: no mixup.
  double cutmix_alpha = 0;  ///< Likewise; with both, one of the two with probability 1/2.

  bool active() const { return mixup_alpha > 0 || cutmix_alpha > 0; }
};

/// What becomes of the image at one position of the global order.
struct Mix {
  /// Position of the other image: uniform over the position's global batch, itself included.
  uint64_t partner = 0;
  /// Share of the image itself, [0, 1]; its label has the same. The rest is the partner's.
  float share = 1;
  /// A box of the partner is pasted (cutmix) rather than the pixels averaged (mixup).
  bool cut = false;
  /// Cut: the pixels [left, right) x [top, bottom).
  int left = 0, top = 0, right = 0, bottom = 0;

  bool operator==(const Mix&) const = default;
};

/// A pure function of its arguments: equal for every cut of the batch over replicas. The position's
/// batch is the run of `global_batch` positions that holds it. Requires options.active(),
/// global_batch >= 1 and image_size >= 1. Sources: Zhang et al. 2018, arXiv:1710.09412; Yun et al.
/// 2019, arXiv:1905.04899.
Mix MixAt(const MixOptions& options, uint64_t seed, uint64_t position, uint32_t global_batch,
          int image_size);

/// `out_chw` [channels, image_size, image_size] becomes its mix with the partner's pixels.
void MixPixels(const Mix& mix, const float* partner_chw, int channels, int image_size,
               float* out_chw);

}  // namespace tundish::data
