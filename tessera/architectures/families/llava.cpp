// LLaVA (Liu et al. 2023; transformers/models/llava): CLIP's vision tower, a projector, and a decoder.

#include <tessera/architectures/vision.h>

#include <tessera/architectures/reading.h>
#include <tessera/base/text.h>

#include <array>
#include <string>
#include <utility>

namespace tessera::architectures {
namespace {

struct Default {
  const char* key;
  std::int64_t value;
};

}  // namespace

Value decoder_config(const Value& json) {
  const Value* const own = given(json, "text_config");
  Value text = own ? *own : Value::make_object();
  require_object(text);
  if (!own) text.set_where(json.where());
  if (!given(text, "model_type")) text.set("model_type", Value::of("llama"));
  const std::string type = text.at("model_type").as_string();
  if (type != "llama" && type != "mistral" && type != "qwen2" && type != "qwen3")
    throw InputError(concat(text.where().str(), ": a decoder of type \"", type,
                            "\" is not supported with a vision tower; supported: llama, mistral, qwen2, qwen3"));
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
                            ": multi-token prediction is not supported with a vision tower: remove it"));
  return text;
}

namespace {

std::int64_t feature_blocks_of(const Value& json, std::int64_t layers) {
  const Value* const layer = given(json, "vision_feature_layer");
  if (layer && layer->kind() != Value::Kind::integer)
    throw InputError(concat(layer->where().str(),
                            ": vision_feature_layer must be one number: features of several layers are not supported"));
  const std::int64_t said = layer ? layer->as_int() : -2;
  const std::int64_t blocks = said < 0 ? layers + 1 + said : said;
  if (blocks < 0 || blocks > layers)
    throw InputError(concat((layer ? *layer : json).where().str(), ": vision_feature_layer ", said, " for a tower of ",
                            layers, " layers, which has hidden states ", -(layers + 1), " to ", layers));
  return blocks;
}

/// CLIP ViT-L/14 for 336 pixels, LlavaConfig's default tower.
constexpr Tower usual_tower = {.layers = 24, .hidden = 1024, .heads = 16, .inner = 4096, .side = 336, .patch = 14};

Tower read_tower(const Value& json) {
  require_object(json);
  if (const Value* type = given(json, "model_type"); type && type->as_string() != "clip_vision_model")
    throw InputError(concat(type->where().str(), ": vision tower \"", type->as_string(),
                            "\" is not supported; supported: clip_vision_model"));
  Tower c;
  c.hidden = positive_or(json, "hidden_size", c.hidden);
  c.inner = positive_or(json, "intermediate_size", c.inner);
  c.layers = positive_or(json, "num_hidden_layers", c.layers);
  c.heads = positive_or(json, "num_attention_heads", c.heads);
  c.side = positive_or(json, "image_size", c.side);
  c.patch = positive_or(json, "patch_size", c.patch);
  c.eps = positive_real(json, "layer_norm_eps", c.eps);
  c.initializer_range = positive_real(json, "initializer_range", c.initializer_range);
  const std::string at = json.where().str();
  if (c.hidden % c.heads != 0)
    throw InputError(concat(at, ": the vision tower's hidden_size ", c.hidden,
                            " is not a multiple of num_attention_heads ", c.heads));
  constexpr std::int64_t most = 16384;  // larger images would not fit into memory
  if (c.side > most || c.patch > c.side)
    throw InputError(concat(at, ": image_size ", c.side, " with patch_size ", c.patch,
                            ": a patch must fit into the image, and at most ", most, " pixels per side are supported"));
  if (const Value* act = given(json, "hidden_act")) {
    const std::string& name = act->as_string();
    if (name != "quick_gelu" && name != "gelu")
      throw InputError(concat(act->where().str(), ": hidden_act \"", name,
                              "\" of a vision tower is not supported; supported: quick_gelu, gelu"));
    c.quick_gelu = name == "quick_gelu";
  }
  if (const Value* channels = given(json, "num_channels"); channels && channels->as_int() != 3)
    throw InputError(concat(channels->where().str(), ": num_channels ", channels->as_int(),
                            "; images must have 3 (red, green, blue)"));
  if (probability(json, "attention_dropout", 0) != 0)
    throw InputError(concat(json.at("attention_dropout").where().str(),
                            ": attention_dropout of a vision tower is not supported: set it to 0"));
  return c;
}

void read_llava(const Value& json, ModelSpec& s) {
  s = read_model(decoder_config(json));
  const Value* const tower = given(json, "vision_config");
  Vision v{tower ? read_tower(*tower) : usual_tower};
  for (const char* key : {"image_token_index", "image_token_id"})
    if (const Value* token = given(json, key)) {
      v.image_token = token->as_int();
      if (v.image_token < 0)
        throw InputError(concat(token->where().str(), ": ", key, " ", v.image_token, "; it must be at least 0"));
    }
  v.blocks = feature_blocks_of(json, v.layers);
  if (const Value* strategy = given(json, "vision_feature_select_strategy")) {
    refuse_other(json, "vision_feature_select_strategy", {"default", "full"});
    v.with_class = strategy->as_string() == "full";
  }
  v.projector_bias = flag(json, "multimodal_projector_bias", true);
  if (const Value* projector = given(json, "mm_projector_type")) v.projections = projections_of(projector->as_string());
  v.activation = read_activation(json, "projector_hidden_act", Activation::gelu_erf);
  v.projector_range = positive_real(json, "initializer_range", 0.02);
  s.vision = v;
}

/// Accepts all of transformers' spellings: "language_model.model.layers.0..." or "model.language_model.layers.0...",
/// the tower's with or without "vision_model."; empty: not a parameter (buffers).
std::string llava_tensor_name(const std::string& name, const Value& config) {
  std::string mine = name;
  constexpr std::string_view outer = "model.", inner = "language_model.model.", decoder = "language_model.",
                             head = "lm_head.weight";
  if (mine == head) mine = concat(decoder, head);
  if (mine.starts_with("model.language_model."))
    mine = concat(inner, mine.substr(outer.size() + decoder.size()));
  else if (mine.starts_with("model.vision_tower.") || mine.starts_with("model.multi_modal_projector."))
    mine = mine.substr(outer.size());
  if (mine.ends_with(".position_ids")) return {};
  constexpr std::string_view tower = "vision_tower.", model = "vision_model.";
  if (mine.starts_with(tower) && !mine.substr(tower.size()).starts_with(model))  // as written by transformers 5
    return concat(tower, model, mine.substr(tower.size()));
  if (!mine.starts_with(decoder)) return mine;
  const Value* const text = given(config, "text_config");
  const std::string in_decoder = llama_tensor_name(mine.substr(decoder.size()), text ? *text : Value::make_object());
  return in_decoder.empty() ? std::string() : concat(decoder, in_decoder);
}

}  // namespace

std::int64_t projections_of(std::string_view type) {
  if (type == "linear") return 1;
  if (type.starts_with("mlp") && type.ends_with("x_gelu") && type.size() > 9) {
    const auto count = parse_int(type.substr(3, type.size() - 9));
    if (count && *count >= 1 && *count <= 16) return *count;
  }
  throw InputError(concat("mm_projector_type ", type,
                          ": it is not implemented; use linear, or mlpNx_gelu with N from 1 to 16 (mlp2x_gelu)"));
}

const Architecture llava = {"llava", "LlavaForConditionalGeneration", "LlamaDecoderLayer", read_llava,
                            llava_tensor_name};

}  // namespace tessera::architectures
