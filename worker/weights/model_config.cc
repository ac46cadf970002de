#include "worker/weights/model_config.h"

#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include <fmt/core.h>

namespace tundish::weights {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTimmClassToken = "token";
constexpr const char* kTimmMean = "avg";
/// Any timm ViT entry point will do: model_args carry the whole shape.
constexpr const char* kTimmArchitecture = "vit_base_patch16_224";
constexpr int kBicubic = 3;  // PIL's number, which transformers writes.
constexpr double kCropShare = 0.9;
constexpr int64_t kMostChannels = 64;
constexpr int64_t kMostExtent = int64_t{1} << 31;

std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Reads fields and remembers the first that is missing or of another kind.
class FieldReader {
 public:
  explicit FieldReader(const Json& json) : json_(json) {}

  const absl::Status& status() const { return status_; }

  /// In [1, most].
  int64_t Integer(const char* name, int64_t most = kMostExtent) {
    const std::string right = fmt::format("a whole number from 1 to {}", most);
    const Json* const value = Get(name, right);
    if (value == nullptr) return 0;
    if (value->is_number_integer() && *value >= 1 && *value <= most) return value->get<int64_t>();
    return Wrong(name, right), 0;
  }

  /// Says something: is there, and not null.
  bool Has(const char* name) const {
    const auto found = json_.find(name);
    return found != json_.end() && !found->is_null();
  }

  /// As Integer; `otherwise` when it is not there. Missing with an `otherwise` of 0 is an error.
  int64_t IntegerOr(const char* name, int64_t otherwise, int64_t most = kMostExtent) {
    return otherwise > 0 && !Has(name) ? otherwise : Integer(name, most);
  }

  int64_t IntegerFromZero(const char* name) {
    return Has(name) && json_.at(name) != 0 ? Integer(name, 1024) : 0;
  }

  bool Flag(const char* name, bool otherwise) {
    if (!Has(name)) return otherwise;
    if (json_.at(name).is_boolean()) return json_.at(name).get<bool>();
    return Wrong(name, "true or false"), otherwise;
  }

  double Number(const char* name) {
    const Json* const value = Get(name, "a number");
    if (value == nullptr) return 0;
    if (value->is_number()) return value->get<double>();
    return Wrong(name, "a number"), 0;
  }

  std::string Text(const char* name) {
    const Json* const value = Get(name, "a string");
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    return Wrong(name, "a string"), std::string();
  }

  template <class T>
  std::vector<T> List(const char* name) {
    const Json* const value = Get(name, "a list");
    if (value == nullptr) return {};
    if (!value->is_array()) return Wrong(name, "a list"), std::vector<T>();
    std::vector<T> list;
    for (const Json& item : *value) {
      if constexpr (std::is_same_v<T, std::string>) {
        if (!item.is_string()) return Wrong(name, "a list of strings"), std::vector<T>();
      } else {
        if (!item.is_number()) return Wrong(name, "a list of numbers"), std::vector<T>();
      }
      list.push_back(item.get<T>());
    }
    return list;
  }

  /// An empty object when missing.
  const Json& Object(const char* name) {
    static const Json empty = Json::object();
    const Json* const value = Get(name, "an object");
    if (value == nullptr) return empty;
    if (value->is_object()) return *value;
    Wrong(name, "an object");
    return empty;
  }

  /// An empty object when missing or null.
  const Json& OptionalObject(const char* name) {
    static const Json empty = Json::object();
    return Has(name) ? Object(name) : empty;
  }

 private:
  const Json* Get(const char* name, std::string_view right) {
    const auto found = json_.find(name);
    if (found != json_.end()) return &*found;
    if (status_.ok())
      status_ = absl::InvalidArgumentError(fmt::format("'{}' is missing: {}", name, right));
    return nullptr;
  }

  void Wrong(const char* name, std::string_view right) {
    if (!status_.ok()) return;
    const std::string text = json_.at(name).dump(-1, ' ', false, Json::error_handler_t::replace);
    status_ =
        absl::InvalidArgumentError(fmt::format("'{}' is {:.64}, it must be {}", name, text, right));
  }

  const Json& json_;  // The caller's, for its function.
  absl::Status status_;
};

absl::StatusOr<Json> ParseObject(std::string_view text) {
  constexpr size_t kMostBytes = size_t{4} << 20;
  // Shallow by construction: refusing deep input here keeps every later walk shallow too.
  constexpr int kMostDepth = 8;
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        fmt::format("a config of {} bytes; at most {} are read", text.size(), kMostBytes));
  }
  const auto shallow = [](int depth, Json::parse_event_t event, Json&) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    return !(opens && depth > kMostDepth);
  };
  Json json = Json::parse(text.begin(), text.end(), shallow, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("the config is not a JSON object");
  return json;
}

absl::Status First(std::initializer_list<absl::Status> statuses) {
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckChannels(const ModelConfig& config) {
  const auto channels = static_cast<size_t>(config.channels);
  if (config.mean.size() == channels && config.std.size() == channels) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} means and {} deviations for {} channels",
                                                config.mean.size(), config.std.size(), channels));
}

/// hidden, depth, heads and mlp_hidden, patch and image size of timm's names such as
/// "vit_base_patch16_224" or "vit_large_patch14_reg4_dinov2".
absl::Status ReadArchitecture(std::string_view name, ModelConfig& config) {
  struct Width {
    std::string_view prefix;
    int64_t hidden, depth, heads;
  };
  constexpr Width kWidths[] = {{"vit_tiny_patch", 192, 12, 3},
                               {"vit_small_patch", 384, 12, 6},
                               {"vit_base_patch", 768, 12, 12},
                               {"vit_large_patch", 1024, 24, 16},
                               {"vit_huge_patch", 1280, 32, 16}};
  for (const Width& width : kWidths) {
    if (!name.starts_with(width.prefix)) continue;
    const std::string_view rest = name.substr(width.prefix.size());
    const auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), config.patch_size);
    if (error != std::errc() || config.patch_size < 1 || config.patch_size > kMostExtent) break;
    config.hidden = width.hidden;
    config.depth = width.depth;
    config.heads = width.heads;
    config.mlp_hidden = 4 * width.hidden;
    return absl::OkStatus();
  }
  config.patch_size = 0;
  return absl::InvalidArgumentError(fmt::format(
      "'architecture' is '{:.64}', whose shape is not known; 'model_args' would tell it", name));
}

/// What model_args say over what the architecture's name said. True when they ask for mean pooling.
bool ReadTimmArguments(FieldReader& arguments, ModelConfig& config) {
  config.image_size = arguments.IntegerOr("img_size", config.image_size);
  config.patch_size = arguments.IntegerOr("patch_size", config.patch_size);
  config.channels = arguments.IntegerOr("in_chans", config.channels, kMostChannels);
  const int64_t named_hidden = config.hidden;
  config.hidden = arguments.IntegerOr("embed_dim", config.hidden);
  config.depth = arguments.IntegerOr("depth", config.depth);
  config.heads = arguments.IntegerOr("num_heads", config.heads);
  if (arguments.Has("mlp_ratio")) {
    const double wide = arguments.Number("mlp_ratio") * static_cast<double>(config.hidden);
    config.mlp_hidden = 1 <= wide && wide <= kMostExtent ? static_cast<int64_t>(wide) : 0;
  } else if (config.hidden != named_hidden) {
    config.mlp_hidden = 4 * config.hidden;
  }
  config.class_token = arguments.Flag("class_token", true);
  config.register_tokens = arguments.IntegerFromZero("reg_tokens");
  config.prefix_positions = !arguments.Flag("no_embed_class", false);
  config.qk_norm = arguments.Flag("qk_norm", false);
  config.layer_scale = arguments.Has("init_values") ? arguments.Number("init_values") : 0;
  return arguments.Has("global_pool") && arguments.Text("global_pool") == kTimmMean;
}

}  // namespace

std::string TimmConfigJson(const ModelConfig& config) {
  const char* const pool = config.mean_pooling ? kTimmMean : kTimmClassToken;
  const Json input_size = {config.channels, config.image_size, config.image_size};
  Json arguments = {
      {"img_size", config.image_size},
      {"patch_size", config.patch_size},
      {"in_chans", config.channels},
      {"embed_dim", config.hidden},
      {"depth", config.depth},
      {"num_heads", config.heads},
      {"mlp_ratio", static_cast<double>(config.mlp_hidden) / static_cast<double>(config.hidden)},
      {"class_token", config.class_token},
      {"global_pool", pool},
      {"reg_tokens", config.register_tokens},
      {"no_embed_class", !config.prefix_positions},
      {"fc_norm", config.norm_after_pooling},
      {"qk_norm", config.qk_norm},
  };
  arguments["init_values"] = config.layer_scale > 0 ? Json(config.layer_scale) : Json(nullptr);
  Json pretrained = {
      {"tag", "tundish"},
      {"input_size", input_size},
      {"fixed_input_size", true},
      {"interpolation", "bicubic"},
      {"crop_pct", kCropShare},
      {"mean", config.mean},
      {"std", config.std},
      {"num_classes", config.label_names.size()},
      {"label_names", config.label_names},
      {"pool_size", nullptr},
      {"first_conv", "patch_embed.proj"},
      {"classifier", "head"},
  };
  const Json json = {
      {"architecture", kTimmArchitecture},
      {"num_classes", config.label_names.size()},
      {"num_features", config.hidden},
      {"global_pool", pool},
      {"model_args", std::move(arguments)},
      {"pretrained_cfg", std::move(pretrained)},
      // Not timm's: what its constructor has no plain argument for.
      {"tundish", {{"layer_norm_eps", config.layer_norm_eps}, {"mlp_hidden", config.mlp_hidden}}},
  };
  return Dump(json);
}

absl::StatusOr<ModelConfig> ParseTimmConfig(std::string_view text) {
  const absl::StatusOr<Json> json = ParseObject(text);
  if (!json.ok()) return json.status();
  FieldReader top(*json);
  const std::string architecture = top.Text("architecture");
  FieldReader pretrained(top.Object("pretrained_cfg"));
  FieldReader arguments(top.OptionalObject("model_args"));
  FieldReader own(top.OptionalObject("tundish"));
  ModelConfig config;
  // Our own files name any architecture; their model_args are complete.
  if (top.status().ok() && !json->contains("tundish")) {
    if (absl::Status named = ReadArchitecture(architecture, config);
        !named.ok() && !json->contains("model_args")) {
      return named;
    }
  }
  const std::vector<double> input =
      pretrained.Has("input_size") ? pretrained.List<double>("input_size") : std::vector<double>();
  const bool sized = input.size() == 3 && 1 <= input[0] && input[0] <= kMostChannels &&
                     1 <= input[1] && input[1] <= kMostExtent;
  config.channels = sized ? static_cast<int64_t>(input[0]) : 3;
  if (sized) config.image_size = static_cast<int64_t>(input[1]);
  const bool mean = ReadTimmArguments(arguments, config);
  config.mlp_hidden = own.IntegerOr("mlp_hidden", config.mlp_hidden);
  config.layer_norm_eps = own.Has("layer_norm_eps") ? own.Number("layer_norm_eps") : 1e-6;
  if (pretrained.Has("label_names"))
    config.label_names = pretrained.List<std::string>("label_names");
  config.mean = pretrained.List<double>("mean");
  config.std = pretrained.List<double>("std");
  const std::string pool =
      top.Has("global_pool") ? top.Text("global_pool") : (mean ? kTimmMean : kTimmClassToken);
  if (absl::Status status =
          First({top.status(), arguments.status(), pretrained.status(), own.status()});
      !status.ok()) {
    return status;
  }
  if (pool != kTimmMean && pool != kTimmClassToken) {
    return absl::InvalidArgumentError(fmt::format("'global_pool' is '{}', it must be '{}' or '{}'",
                                                  pool, kTimmClassToken, kTimmMean));
  }
  config.mean_pooling = pool == kTimmMean;
  config.norm_after_pooling = arguments.Flag("fc_norm", config.mean_pooling);
  if (absl::Status status = First({arguments.status(), CheckChannels(config)}); !status.ok()) {
    return status;
  }
  return config;
}

/// What ViTForImageClassification has no place for; empty when it fits.
std::string_view BeyondHuggingFace(const ModelConfig& config) {
  if (config.mean_pooling) return "mean pooling";
  if (!config.class_token) return "a model without class token";
  if (config.register_tokens > 0) return "a model with register tokens";
  if (config.norm_after_pooling) return "an fc_norm";
  if (!config.prefix_positions) return "a class token without position";
  if (config.qk_norm) return "a norm of queries and keys";
  if (config.layer_scale > 0) return "layer scale";
  return "";
}

absl::StatusOr<std::string> HuggingFaceConfigJson(const ModelConfig& config) {
  if (const std::string_view beyond = BeyondHuggingFace(config); !beyond.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("{} has no place in Hugging Face's ViTForImageClassification; use the timm "
                    "layout",
                    beyond));
  }
  Json id2label = Json::object();
  Json label2id = Json::object();
  for (size_t i = 0; i < config.label_names.size(); ++i) {
    id2label[std::to_string(i)] = config.label_names[i];
    label2id[config.label_names[i]] = i;
  }
  const Json json = {
      {"architectures", {"ViTForImageClassification"}},
      {"model_type", "vit"},
      {"hidden_size", config.hidden},
      {"num_hidden_layers", config.depth},
      {"num_attention_heads", config.heads},
      {"intermediate_size", config.mlp_hidden},
      {"hidden_act", "gelu"},
      {"hidden_dropout_prob", 0.0},
      {"attention_probs_dropout_prob", 0.0},
      {"layer_norm_eps", config.layer_norm_eps},
      {"image_size", config.image_size},
      {"patch_size", config.patch_size},
      {"num_channels", config.channels},
      {"qkv_bias", true},
      {"id2label", std::move(id2label)},
      {"label2id", std::move(label2id)},
      {"torch_dtype", "float32"},
  };
  return Dump(json);
}

std::string HuggingFacePreprocessorJson(const ModelConfig& config) {
  const Json json = {
      {"image_processor_type", "ViTImageProcessor"},
      {"do_resize", true},
      {"size", {{"height", config.image_size}, {"width", config.image_size}}},
      {"resample", kBicubic},
      {"do_rescale", true},
      {"rescale_factor", 1.0 / 255},
      {"do_normalize", true},
      {"image_mean", config.mean},
      {"image_std", config.std},
  };
  return Dump(json);
}

absl::StatusOr<ModelConfig> ParseHuggingFaceConfig(std::string_view config_json,
                                                   std::string_view preprocessor_json) {
  const absl::StatusOr<Json> json = ParseObject(config_json);
  if (!json.ok()) return json.status();
  FieldReader top(*json);
  ModelConfig config;
  config.hidden = top.Integer("hidden_size");
  config.depth = top.Integer("num_hidden_layers");
  config.heads = top.Integer("num_attention_heads");
  config.mlp_hidden = top.Integer("intermediate_size");
  config.layer_norm_eps = top.Number("layer_norm_eps");
  config.image_size = top.Integer("image_size");
  config.patch_size = top.Integer("patch_size");
  config.channels = top.Integer("num_channels", kMostChannels);
  const std::string activation = top.Text("hidden_act");
  // transformers leaves the names of two classes out when nobody gave them any.
  const Json& labels = top.OptionalObject("id2label");
  if (!top.status().ok()) return top.status();
  if (activation != "gelu") {
    return absl::InvalidArgumentError(
        fmt::format("'hidden_act' is '{}'; only the exact 'gelu' is computed", activation));
  }
  if (const auto bias = json->find("qkv_bias"); bias != json->end() && *bias != true) {
    return absl::InvalidArgumentError(
        "'qkv_bias' is false; only models with these biases are computed");
  }
  FieldReader by_id(labels);
  for (size_t i = 0; i < labels.size(); ++i) {
    config.label_names.push_back(by_id.Text(std::to_string(i).c_str()));
  }
  if (!by_id.status().ok()) return by_id.status();
  config.mean.assign(static_cast<size_t>(config.channels), 0.5);
  config.std = config.mean;
  if (!preprocessor_json.empty()) {
    const absl::StatusOr<Json> preprocessor = ParseObject(preprocessor_json);
    if (!preprocessor.ok()) return preprocessor.status();
    FieldReader fields(*preprocessor);
    config.mean = fields.List<double>("image_mean");
    config.std = fields.List<double>("image_std");
    if (!fields.status().ok()) return fields.status();
  }
  if (absl::Status status = CheckChannels(config); !status.ok()) return status;
  return config;
}

absl::StatusOr<ModelConfig> ParseAnyConfig(std::string_view config_json,
                                           std::string_view preprocessor_json) {
  const absl::StatusOr<Json> json = ParseObject(config_json);
  if (!json.ok()) return json.status();
  const auto type = json->find("model_type");
  if (type != json->end()) {
    if (*type == "vit") return ParseHuggingFaceConfig(config_json, preprocessor_json);
    return absl::InvalidArgumentError(
        fmt::format("'model_type' is {:.64}, it must be \"vit\"",
                    type->dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  if (json->contains("architecture")) return ParseTimmConfig(config_json);
  return absl::InvalidArgumentError(
      "neither timm's 'architecture' nor Hugging Face's 'model_type' is among its fields");
}

}  // namespace tundish::weights
