#include "worker/engine/model/vit_shape.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tundish::model {
namespace {

TEST(VitShapeTest, NamesWhatIsWrongAndWhatIsRight) {
  struct Case {
    const char* name;
    VitShape shape;
    int tensor;
    const char* want;  // empty: OK
  };
  const Case cases[] = {
      {"ViT-B", {}, 4, ""},
      {"ViT-B over 12", {}, 12, ""},
      {"heads do not divide", {}, 8, "heads 12 must be a multiple of the tensor-parallel degree 8"},
      {"mlp does not divide", {.mlp_hidden = 3070}, 4, "mlp_hidden 3070 must be a multiple"},
      {"width over heads", {.hidden = 770}, 1, "hidden 770 must be a multiple of heads 12"},
      {"patches do not tile",
       {.image_size = 225},
       1,
       "image_size 225 must be a multiple of patch_size 16"},
      {"no classes", {.classes = 0}, 1, "classes 0 must be from 1"},
      {"absurd width", {.hidden = int64_t{1} << 40}, 1, "hidden 1099511627776 must be"},
      {"too many patches", {.image_size = 8192, .patch_size = 1}, 1, "patches"},
      {"no ranks", {}, 0, "tensor 0 must be from 1"},
      {"eps", {.layer_norm_eps = 0}, 1, "layer_norm_eps 0 must be above 0"},
      {"drop path", {.drop_path_rate = 1}, 1, "drop_path_rate 1 must be"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const absl::Status got = c.shape.Validate(c.tensor);
    EXPECT_EQ(got.ok(), std::string(c.want).empty()) << got;
    if (!got.ok()) {
      EXPECT_THAT(std::string(got.message()), testing::HasSubstr(c.want));
    }
  }
}

}  // namespace
}  // namespace tundish::model
