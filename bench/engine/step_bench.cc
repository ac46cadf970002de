// Tundish's training step alone: forward, backward, gradient norm and AdamW of a ViT on data that
// is in memory. For each line "N" on standard input it takes N steps and prints their median
// seconds; bench/engine/run.py starts it beside its peers and lets them run in turn.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "worker/engine/model/vit.h"
#include "worker/engine/optimizer/adamw.h"
#include "worker/engine/optimizer/gradient_norm.h"

namespace tundish {
namespace {

struct Bench {
  parallel::GroupSlot slot{0, 1};
  model::Vit vit;
  at::Tensor images, labels;
  int64_t updates = 0;

  Bench(const model::VitShape& shape, int64_t batch)
      : vit(shape, slot, at::kCPU),
        images(at::randn({batch, shape.channels, shape.image_size, shape.image_size})),
        labels(at::randint(0, shape.classes, {batch}, at::kLong)) {
    vit.InitializeFromSeed(1);
  }

  double Step() {
    const auto start = std::chrono::steady_clock::now();
    for (model::Parameter& parameter : vit.parameters()) parameter.value.mutable_grad().reset();
    torch::autograd::backward({at::cross_entropy_loss(vit.Forward(images, {}), labels)}, {});
    const double norm = std::sqrt(optimizer::LocalNormSquared(vit.parameters(), 0));
    optimizer::ApplyAdamW(vit.parameters(), {}, 1e-4, updates++,
                          optimizer::ClipCoefficient(norm, 1));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

int Run(int argc, char** argv) {
  // WIDTH HEADS DEPTH IMAGE BATCH THREADS; ViT-T/16 at 224, batch 16, two threads.
  const auto argument = [&](int index, int64_t otherwise) {
    return index < argc ? std::strtoll(argv[index], nullptr, 10) : otherwise;
  };
  model::VitShape shape;
  shape.hidden = argument(1, 192);
  shape.heads = argument(2, 3);
  shape.depth = argument(3, 12);
  shape.image_size = argument(4, 224);
  shape.mlp_hidden = 4 * shape.hidden;
  shape.classes = 10;
  at::set_num_threads(static_cast<int>(argument(6, 2)));
  Bench bench(shape, argument(5, 16));
  for (int steps = 0; std::cin >> steps;) {
    std::vector<double> seconds;
    for (int i = 0; i < steps; ++i) seconds.push_back(bench.Step());
    std::ranges::sort(seconds);
    std::cout << seconds[seconds.size() / 2] << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tundish

int main(int argc, char** argv) {
  return tundish::Run(argc, argv);
}
