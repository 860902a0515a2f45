#include <tessera/models/llama_config.h>

#include <tessera/base/error.h>
#include <tessera/config/core/prediction_depths.h>
#include <tessera/config/model/config_value.h>
#include <tessera/models/registry.h>
#include <algorithm>
#include <cmath>
#include <string>

namespace tessera::models {
using config::flag, config::given, config::positive, config::positive_or, config::positive_real, config::probability,
    config::refuse_other, config::require_object;
namespace {

/// Mistral, Mixtral, Qwen3-MoE: one window for all layers. Qwen: `use_sliding_window`, then the layers from
/// max_window_layers on, unless layer_types says which. Llama has none.
std::vector<std::int64_t> read_windows(const Value& json, const std::string& type, std::int64_t layers) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const Value* size = given(json, "sliding_window");
  const bool qwen = type == "qwen2" || type == "qwen3" || type == "qwen2_moe";
  if (type == "llama" || type == "olmoe" || type == "deepseek_v3" || !size) return windows;
  if ((qwen || type == "qwen3_moe") && !flag(json, "use_sliding_window", false)) return windows;
  const std::int64_t window = positive(json, "sliding_window");
  if (const Value* types = given(json, "layer_types"); qwen && types) return windows_of(*types, layers, window);
  const Value* first = given(json, "max_window_layers");
  if (type == "qwen2_moe") {  // every second one of the first max_window_layers
    for (std::int64_t i = 0; i < std::min(layers, first ? first->as_int() : 28); i += 2)
      windows[static_cast<std::size_t>(i)] = window;
    return windows;
  }
  const std::int64_t begin = qwen ? (first ? first->as_int() : 28) : 0;
  for (std::int64_t i = std::max<std::int64_t>(begin, 0); i < layers; ++i)
    windows[static_cast<std::size_t>(i)] = window;
  return windows;
}

}  // namespace

LatentConfig read_latent(const Value& json, const RopeConfig& rope) {
  LatentConfig c;
  c.query_rank = given(json, "q_lora_rank") ? positive(json, "q_lora_rank") : 0;
  c.key_rank = positive_or(json, "kv_lora_rank", 512);
  c.plain = positive_or(json, "qk_nope_head_dim", 128);
  c.rotated = rope.dim;
  c.value = positive_or(json, "v_head_dim", 128);
  c.interleaved = flag(json, "rope_interleave", true);
  c.scale = rope.score_factor / std::sqrt(static_cast<double>(c.plain + c.rotated));
  return c;
}

void read_depths(const Value& json, LlamaConfig& c) {
  c.depths = config::prediction_depths(json);
  if (c.depths == 0) return;
  const auto all = static_cast<std::size_t>(c.layers + c.depths);
  c.windows.resize(all, c.windows.back());
  c.rotations.resize(all, c.rotations.back());
  if (c.moe) c.moe->sparse.resize(all, c.moe->sparse.back());
  if (c.linear) c.linear->layers.resize(all, c.linear->layers.back());
}

std::vector<std::int64_t> windows_of(const Value& types, std::int64_t layers, std::int64_t window) {
  if (static_cast<std::int64_t>(types.items().size()) != layers)
    throw InputError(
        concat(types.where().str(), ": layer_types has ", types.items().size(), " entries for ", layers, " layers"));
  std::vector<std::int64_t> windows;
  for (const Value& layer : types.items()) {
    const bool slides = layer.as_string() == "sliding_attention";
    if (!slides && layer.as_string() != "full_attention")
      throw InputError(concat(layer.where().str(), ": layer type \"", layer.as_string(),
                              "\" is not supported; full_attention and sliding_attention are"));
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

std::vector<std::int64_t> windows_in_turn(const Value& json, std::int64_t layers, std::int64_t window,
                                          std::int64_t period) {
  if (const Value* types = given(json, "layer_types")) return windows_of(*types, layers, window);
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  for (std::int64_t i = 0; i < layers; ++i)
    if ((i + 1) % period != 0) windows[static_cast<std::size_t>(i)] = window;
  return windows;
}

LlamaConfig read_sizes(const Value& json, const SizeDefaults& defaults) {
  require_object(json);
  LlamaConfig c{};
  c.layers = positive(json, "num_hidden_layers");
  c.hidden = positive(json, "hidden_size");
  c.heads = positive(json, "num_attention_heads");
  c.key_heads = positive_or(json, "num_key_value_heads", defaults.key_heads > 0 ? defaults.key_heads : c.heads);
  c.intermediate = positive(json, "intermediate_size");
  c.vocab_size = positive(json, "vocab_size");
  c.max_positions = positive(json, "max_position_embeddings");
  const Value* size = given(json, defaults.head_size_key);
  if (!size && defaults.head_size == 0 && c.hidden % c.heads != 0)
    throw InputError(concat(json.at("hidden_size").where().str(), ": hidden_size ", c.hidden,
                            " is not a multiple of num_attention_heads ", c.heads));
  c.head_size = size                     ? positive(json, defaults.head_size_key)
                : defaults.head_size > 0 ? defaults.head_size
                                         : c.hidden / c.heads;
  if (c.head_size % 2 != 0)
    throw InputError(concat((size ? *size : json.at("hidden_size")).where().str(), ": heads of ", c.head_size,
                            " cannot be rotated: the size must be even"));
  if (c.heads % c.key_heads != 0)
    throw InputError(concat(json.at("num_attention_heads").where().str(), ": num_attention_heads ", c.heads,
                            " is not a multiple of num_key_value_heads ", c.key_heads));
  c.norms.eps = positive_real(json, "rms_norm_eps", 1e-6);
  c.initializer_range = positive_real(json, "initializer_range", 0.02);
  c.attention_dropout = probability(json, "attention_dropout", 0);
  c.tie_word_embeddings = flag(json, "tie_word_embeddings", defaults.tied);
  c.score_scale = 1 / std::sqrt(static_cast<double>(c.head_size));
  c.windows.assign(static_cast<std::size_t>(c.layers), 0);
  c.rotations.assign(static_cast<std::size_t>(c.layers), LayerRope::usual);
  return c;
}

LlamaConfig with_mup(const Value& json, LlamaConfig c) {
  c.mup = read_mup(json, c.hidden);
  if (!c.mup) return c;
  const Multipliers& own = c.multipliers;
  const bool plain = own.embedding == 1 && own.residual == 1 && own.logits == 1 &&
                     std::abs(c.score_scale * std::sqrt(static_cast<double>(c.head_size)) - 1) < 1e-9;
  const char* const why = c.latent      ? "latent attention has a scale of its own"
                          : c.linear    ? "linear attention has no scores to scale"
                          : c.head_bias ? "the head has a bias, which the factor of the logits would scale, too"
                          : c.caps.scores > 0 || c.caps.logits > 0 ? "scores or logits are capped"
                          : !plain ? "the family has factors of its own for scores, embeddings or logits"
                                   : nullptr;
  if (why != nullptr)
    throw InputError(concat(json.at("use_mup").where().str(), ": use_mup is not supported here: ", why,
                            "; use a GPT-2, Llama, Mistral, Qwen or OPT, or leave it out"));
  c.score_scale = c.mup->score_scale(c.head_size);
  c.multipliers.embedding = c.mup->embedding;
  c.multipliers.logits = c.mup->logits;
  return c;
}

LlamaConfig parse_llama_config(const Value& json) {
  const std::string type = architecture_of(json).model_type;
  const bool mistral = type == "mistral" || type == "mixtral", qwen2 = type == "qwen2" || type == "qwen2_moe";
  const bool latent = type == "deepseek_v3";
  LlamaConfig c = read_sizes(json, {.key_heads = mistral               ? 8
                                                 : type == "qwen3_moe" ? 4
                                                                       : 0,
                                    .head_size = latent            ? 64
                                                 : type == "qwen3" ? 128
                                                                   : 0,
                                    .head_size_key = latent ? "qk_rope_head_dim" : "head_dim"});
  refuse_other(json, "hidden_act", {"silu"});
  const bool bias = !mistral && !qwen2 && flag(json, "attention_bias", false);
  c.query_bias = type == "qwen2" || (type == "qwen2_moe" && flag(json, "qkv_bias", true)) || bias;
  c.output_bias = bias;
  c.mlp_bias = type == "llama" && flag(json, "mlp_bias", false);
  c.norm_of_all_heads = type == "olmoe";
  c.query_key_norm = type == "qwen3" || type == "qwen3_moe" || type == "olmoe";
  c.clip_qkv = type == "olmoe" && given(json, "clip_qkv") ? positive_real(json, "clip_qkv", 0) : 0;
  c.windows = read_windows(json, type, c.layers);
  if (const Value* slices = given(json, "pretraining_tp"); slices && slices->as_int() != 1)
    throw InputError(
        concat(slices->where().str(), ": pretraining_tp ", slices->as_int(), " is not supported (only 1 is)"));
  c.rope = parse_rope(json, c.head_size, c.max_positions);
  const bool mixtral = type == "mixtral";
  if (mixtral) c.names = layout::mixtral_names;
  if (latent) c.latent = read_latent(json, c.rope);
  if (latent && c.key_heads != c.heads)
    throw InputError(concat(json.at("num_key_value_heads").where().str(), ": num_key_value_heads ", c.key_heads, " of ",
                            c.heads, " heads: in latent attention every head has keys of its own"));
  if (mixtral && !given(json, "rope_theta") && !given(json, "rope_parameters"))
    c.rope.theta = 1e6;  // what MixtralConfig has where config.json says nothing
  if (mixtral || type == "qwen2_moe" || type == "qwen3_moe" || type == "olmoe" || latent)
    c.moe = parse_moe_config(json, type, c.layers);
  read_depths(json, c);
  return c;
}

}  // namespace tessera::models
