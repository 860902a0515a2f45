#include <tessera/config/model/vision_config.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/model/config_value.h>
#include <tessera/config/sections/model_config.h>

#include <array>
#include <string>
#include <utility>

namespace tessera::config {
namespace {

struct Default {
  const char* key;
  std::int64_t value;
};

/// text_config with what its type's configuration in transformers has where the file says nothing: those that were
/// saved by transformers hold differences only.
Value complete_text(const Value& json) {
  const Value* const own = given(json, "text_config");
  Value text = own ? *own : Value::make_object();
  require_object(text);
  if (!own) text.set_where(json.where());
  if (!given(text, "model_type")) text.set("model_type", Value::of("llama"));
  const std::string type = text.at("model_type").as_string();
  if (type != "llama" && type != "mistral" && type != "qwen2" && type != "qwen3")
    throw InputError(concat(text.where().str(), ": a decoder of type \"", type,
                            "\" is not supported beside a vision tower; supported: llama, mistral, qwen2, qwen3"));
  const bool mistral = type == "mistral";
  const std::array<Default, 6> defaults = {{{"vocab_size", 32000},
                                            {"hidden_size", 4096},
                                            {"intermediate_size", mistral ? 14336 : 11008},
                                            {"num_hidden_layers", 32},
                                            {"num_attention_heads", 32},
                                            {"max_position_embeddings", mistral ? 131072 : 2048}}};
  if (type == "llama" || mistral)
    for (const Default& d : defaults)
      if (!given(text, d.key)) text.set(d.key, Value::of(d.value));
  if (mistral && !given(text, "num_key_value_heads")) text.set("num_key_value_heads", Value::of(8));
  if (given(text, "mtp_num_layers"))
    throw InputError(concat(text.at("mtp_num_layers").where().str(),
                            ": multi-token prediction is not supported beside a vision tower: leave it out"));
  return text;
}

/// CLIP ViT-L/14 for 336 pixels, which LlavaConfig means where no tower is described.
ClipVisionConfig usual_tower() {
  ClipVisionConfig c;
  c.hidden = 1024;
  c.intermediate = 4096;
  c.layers = 24;
  c.heads = 16;
  c.image_size = 336;
  c.patch_size = 14;
  return c;
}

std::int64_t feature_blocks_of(const Value& json, std::int64_t layers) {
  const Value* const layer = given(json, "vision_feature_layer");
  if (layer && layer->kind() != Value::Kind::integer)
    throw InputError(concat(layer->where().str(),
                            ": vision_feature_layer must be one number: features of several layers are not supported"));
  const std::int64_t said = layer ? layer->as_int() : -2;
  const std::int64_t blocks = said < 0 ? layers + 1 + said : said;
  if (blocks < 0 || blocks > layers)
    throw InputError(concat((layer ? *layer : json).where().str(), ": vision_feature_layer ", said, " of a tower of ",
                            layers, " layers, which has hidden states ", -(layers + 1), " to ", layers));
  return blocks;
}

}  // namespace

ClipVisionConfig parse_clip_vision_config(const Value& json) {
  require_object(json);
  if (const Value* type = given(json, "model_type"); type && type->as_string() != "clip_vision_model")
    throw InputError(concat(type->where().str(), ": vision tower \"", type->as_string(),
                            "\" is not supported; supported: clip_vision_model"));
  ClipVisionConfig c;
  c.hidden = positive_or(json, "hidden_size", c.hidden);
  c.intermediate = positive_or(json, "intermediate_size", c.intermediate);
  c.layers = positive_or(json, "num_hidden_layers", c.layers);
  c.heads = positive_or(json, "num_attention_heads", c.heads);
  c.image_size = positive_or(json, "image_size", c.image_size);
  c.patch_size = positive_or(json, "patch_size", c.patch_size);
  c.eps = positive_real(json, "layer_norm_eps", c.eps);
  c.initializer_range = positive_real(json, "initializer_range", c.initializer_range);
  const std::string at = json.where().str();
  if (c.hidden % c.heads != 0)
    throw InputError(concat(at, ": the vision tower's hidden_size ", c.hidden,
                            " is not a multiple of num_attention_heads ", c.heads));
  constexpr std::int64_t most = 16384;  // an image of more would not fit into memory
  if (c.image_size > most || c.patch_size > c.image_size)
    throw InputError(concat(at, ": image_size ", c.image_size, " with patch_size ", c.patch_size,
                            ": a patch must fit into the image, and at most ", most, " pixels are read of a side"));
  if (const Value* act = given(json, "hidden_act")) {
    const std::string& name = act->as_string();
    if (name != "quick_gelu" && name != "gelu")
      throw InputError(concat(act->where().str(), ": hidden_act \"", name,
                              "\" of a vision tower is not supported; supported: quick_gelu, gelu"));
    c.quick_gelu = name == "quick_gelu";
  }
  if (const Value* channels = given(json, "num_channels"); channels && channels->as_int() != 3)
    throw InputError(concat(channels->where().str(), ": num_channels ", channels->as_int(),
                            "; images here have 3 (red, green, blue)"));
  if (probability(json, "attention_dropout", 0) != 0)
    throw InputError(concat(json.at("attention_dropout").where().str(),
                            ": attention_dropout of a vision tower is not supported: set it to 0"));
  return c;
}

LlavaParts parse_llava_parts(const Value& json) {
  require_object(json);
  LlavaParts c;
  c.text = complete_text(json);
  const Value* const vision = given(json, "vision_config");
  c.vision = vision ? parse_clip_vision_config(*vision) : usual_tower();
  for (const char* key : {"image_token_index", "image_token_id"})
    if (const Value* token = given(json, key)) {
      c.image_token = token->as_int();
      if (c.image_token < 0)
        throw InputError(concat(token->where().str(), ": ", key, " ", c.image_token, "; ids are 0 and more"));
    }
  c.feature_blocks = feature_blocks_of(json, c.vision.layers);
  if (const Value* strategy = given(json, "vision_feature_select_strategy")) {
    refuse_other(json, "vision_feature_select_strategy", {"default", "full"});
    c.with_class = strategy->as_string() == "full";
  }
  c.projector_bias = flag(json, "multimodal_projector_bias", true);
  if (const Value* projector = given(json, "mm_projector_type")) c.projections = projections_of(projector->as_string());
  return c;
}

std::int64_t projections_of(std::string_view type) {
  if (type == "linear") return 1;
  if (type.starts_with("mlp") && type.ends_with("x_gelu") && type.size() > 9) {
    const auto count = parse_int(type.substr(3, type.size() - 9));
    if (count && *count >= 1 && *count <= 16) return *count;
  }
  throw InputError(concat("mm_projector_type ", type, ": linear, or mlpNx_gelu with N from 1 to 16 (mlp2x_gelu)"));
}

bool sees_images(const Value& hf_config) {
  const Value* const type = hf_config.find("model_type");
  return type != nullptr && type->is_string() && type->as_string() == "llava";
}

Value compose_llava_config(const Value& language, const Value& tower, const ModelConfig& config) {
  Value vision = given(tower, "vision_config") ? *given(tower, "vision_config") : tower;
  if (!given(vision, "model_type")) vision.set("model_type", Value::of("clip_vision_model"));
  const std::string& type = config.mm_projector_type;
  projections_of(type);
  const bool full = config.mm_vision_select_feature == "cls_patch";
  Value json = Value::make_object({{"architectures", Value::make_array({Value::of("LlavaForConditionalGeneration")})},
                                   {"model_type", Value::of("llava")},
                                   {"text_config", language},
                                   {"vision_config", std::move(vision)},
                                   {"image_token_index", Value::of(positive(language, "vocab_size"))},
                                   {"projector_hidden_act", Value::of("gelu")},
                                   {"multimodal_projector_bias", Value::of(true)},
                                   {"vision_feature_layer", Value::of(config.mm_vision_select_layer)},
                                   {"vision_feature_select_strategy", Value::of(full ? "full" : "default")},
                                   {"tie_word_embeddings", Value::of(false)}});
  if (type != "mlp2x_gelu") json.set("mm_projector_type", Value::of(type));
  return json;
}

}  // namespace tessera::config
