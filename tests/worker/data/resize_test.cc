#include "worker/data/resize.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"
#include "worker/data/random.h"

namespace tundish::data {
namespace {

struct Case {
  int width, height;
  Box box;
  int out_width, out_height;
};

std::vector<Case> RandomCases() {
  std::vector<Case> cases;
  CounterRandom random(7, Purpose::kAugmentation, 0);
  for (int i = 0; i < 150; ++i) {
    Case c = {.width = 1 + static_cast<int>(random.NextBelow(150)),
              .height = 1 + static_cast<int>(random.NextBelow(90)),
              .out_width = 1 + static_cast<int>(random.NextBelow(70)),
              .out_height = 1 + static_cast<int>(random.NextBelow(70))};
    const auto width = static_cast<float>(c.width);
    const auto height = static_cast<float>(c.height);
    c.box.left = random.NextUniform(0, width / 2);
    c.box.top = random.NextUniform(0, height / 2);
    c.box.right = random.NextUniform(width / 2 + 0.1F, width);
    c.box.bottom = random.NextUniform(height / 2 + 0.1F, height);
    cases.push_back(c);
  }
  return cases;
}

TEST(ResizeTest, AllKernelsAreEqual) {
  for (const ResizeKernels* kernels : UsableKernels()) {
    Resizer plain(*UsableKernels().front());
    Resizer fast(*kernels);
    for (const Case& c : RandomCases()) {
      for (const int channels : {1, 3}) {
        for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
          const ImagePart part = WholePart(Pattern(c.width, c.height, channels));
          std::vector<uint8_t> a(static_cast<size_t>(c.out_width * c.out_height * channels));
          std::vector<uint8_t> b = a;
          plain.Resize(part, c.box, c.out_width, c.out_height, filter, a.data());
          fast.Resize(part, c.box, c.out_width, c.out_height, filter, b.data());
          ASSERT_EQ(a, b) << c.width << " x " << c.height << " to " << c.out_width << " x "
                          << c.out_height;
        }
      }
    }
  }
}

TEST(ResizeTest, ThePixelsReadAreEnough) {
  Resizer resizer;
  for (const Case& c : RandomCases()) {
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
      const Image whole = Pattern(c.width, c.height, 3);
      const Region read = PixelsRead(c.width, c.height, c.box, c.out_width, c.out_height, filter);
      ImagePart part = {.image = {.width = read.width, .height = read.height, .channels = 3},
                        .left = read.left,
                        .top = read.top,
                        .full_width = c.width,
                        .full_height = c.height};
      for (int y = read.top; y < read.bottom(); ++y) {
        const uint8_t* row = whole.row(y) + 3 * read.left;
        part.image.pixels.insert(part.image.pixels.end(), row, row + 3 * read.width);
      }
      Image out = {.width = c.out_width, .height = c.out_height, .channels = 3};
      out.pixels.resize(out.row_bytes() * out.height);
      resizer.Resize(part, c.box, c.out_width, c.out_height, filter, out.pixels.data());
      ASSERT_EQ(out.pixels, Resize(whole, c.box, c.out_width, c.out_height, filter).pixels);
    }
  }
}

TEST(ResizeTest, FlatImagesStayFlat) {
  for (const int level : {0, 1, 127, 254, 255}) {
    Image flat = {.width = 97, .height = 61, .channels = 3};
    flat.pixels.assign(flat.row_bytes() * flat.height, static_cast<uint8_t>(level));
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
      for (const int size : {1, 5, 24, 200}) {
        const Image out = Resize(flat, {0.5, 0.25, 90.125, 60}, size, size, filter);
        for (const uint8_t value : out.pixels) ASSERT_EQ(value, level) << size;
      }
    }
  }
}

}  // namespace
}  // namespace tundish::data
