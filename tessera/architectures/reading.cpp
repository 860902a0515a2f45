#include <tessera/architectures/reading.h>

#include <cmath>
#include <string>

namespace tessera::architectures {
namespace {

const Value& place_of(const Value& json, const char* key) { return given(json, key) ? *given(json, key) : json; }

}  // namespace

void check_divides(const Value& json, const char* whole, std::int64_t n, const char* by, std::int64_t d) {
  if (n % d == 0) return;
  throw InputError(
      concat(place_of(json, whole).where().str(), ": ", whole, " ", n, " is not a multiple of ", by, " ", d));
}

std::int64_t read_layers(const Value& json, const char* key) {
  constexpr std::int64_t most = 65536;
  const std::int64_t layers = positive(json, key);
  if (layers > most)
    throw InputError(concat(json.at(key).where().str(), ": ", layers, " layers; at most ", most, " are supported"));
  return layers;
}

void read_sizes(const Value& json, ModelSpec& s, const SizeDefaults& defaults) {
  s.layers = read_layers(json, "num_hidden_layers");
  s.hidden = positive(json, "hidden_size");
  s.heads = positive(json, "num_attention_heads");
  s.key_heads = positive_or(json, "num_key_value_heads", defaults.key_heads > 0 ? defaults.key_heads : s.heads);
  s.inner = positive(json, defaults.inner_key);
  s.vocabulary = positive(json, "vocab_size");
  s.positions = positive(json, "max_position_embeddings");
  const Value* size = given(json, defaults.head_size_key);
  if (!size && defaults.head_size == 0) check_divides(json, "hidden_size", s.hidden, "num_attention_heads", s.heads);
  s.head_size = size                     ? positive(json, defaults.head_size_key)
                : defaults.head_size > 0 ? defaults.head_size
                                         : s.hidden / s.heads;
  if (s.head_size % 2 != 0)
    throw InputError(concat((size ? *size : json.at("hidden_size")).where().str(), ": heads of ", s.head_size,
                            " cannot be rotated: the size must be even"));
  check_divides(json, "num_attention_heads", s.heads, "num_key_value_heads", s.key_heads);
  s.norms.eps = positive_real(json, "rms_norm_eps", 1e-6);
  s.initializer_range = positive_real(json, "initializer_range", 0.02);
  s.attention_dropout = probability(json, "attention_dropout", 0);
  s.tied = flag(json, "tie_word_embeddings", defaults.tied);
  s.score_scale = 1 / std::sqrt(static_cast<double>(s.head_size));
}

void read_biases(const Value& json, ModelSpec& s) {
  s.query_bias = s.output_bias = flag(json, "attention_bias", false);
  s.mlp_bias = flag(json, "mlp_bias", false);
}

Activation read_activation(const Value& json, const char* key, Activation otherwise) {
  const Value* v = given(json, key);
  if (!v) return otherwise;
  const std::string& name = v->as_string();
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return Activation::gelu_tanh;
  if (name == "gelu" || name == "gelu_python") return Activation::gelu_erf;
  if (name == "relu") return Activation::relu;
  if (name == "relu2") return Activation::relu_squared;
  if (name == "silu" || name == "swish") return Activation::silu;
  throw InputError(concat(v->where().str(), ": ", key, " \"", name,
                          "\" is not supported; supported: gelu, gelu_new, gelu_pytorch_tanh, relu, relu2, silu"));
}

void refuse_flag(const Value& json, const char* key, const char* why) {
  if (flag(json, key, false)) throw InputError(concat(json.at(key).where().str(), ": ", key, why));
}

void refuse_slices(const Value& json) {
  if (const Value* slices = given(json, "pretraining_tp"); slices && slices->as_int() != 1)
    throw InputError(
        concat(slices->where().str(), ": pretraining_tp ", slices->as_int(), " is not supported (only 1 is)"));
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

void read_one_window(const Value& json, ModelSpec& s) {
  if (given(json, "sliding_window"))
    s.windows.assign(static_cast<std::size_t>(s.layers), positive(json, "sliding_window"));
}

void rotate_by_window(ModelSpec& s, LayerRope without, LayerRope with) {
  for (const std::int64_t window : s.windows) s.rotations.push_back(window == 0 ? without : with);
}

void read_latent(const Value& json, ModelSpec& s) {
  Latent l;
  l.query_rank = given(json, "q_lora_rank") ? positive(json, "q_lora_rank") : 0;
  l.key_rank = positive_or(json, "kv_lora_rank", 512);
  l.plain = positive_or(json, "qk_nope_head_dim", 128);
  l.rotated = s.rope.dim;
  l.value = positive_or(json, "v_head_dim", 128);
  l.interleaved = flag(json, "rope_interleave", true);
  l.scale = s.rope.score_factor / std::sqrt(static_cast<double>(l.plain + l.rotated));
  s.head_size = l.widest();
  s.latent = l;
}

Experts read_experts(const Value& json, const ModelSpec& s, const ExpertDefaults& defaults) {
  Experts e;
  e.count = positive_or(json, defaults.count_key, defaults.count);
  e.top_k = positive_or(json, "num_experts_per_tok", defaults.top_k);
  e.normalize = flag(json, "norm_topk_prob", defaults.normalize);
  e.inner = s.inner;
  check_part(json, "num_experts_per_tok", e.top_k, e.count, "experts");
  if (!flag(json, "output_router_logits", false)) return e;
  const Value* coefficient = given(json, "router_aux_loss_coef");
  e.auxiliary = coefficient ? coefficient->as_real() : defaults.auxiliary;
  if (!(e.auxiliary >= 0))
    throw InputError(
        concat(coefficient->where().str(), ": \"router_aux_loss_coef\" is ", e.auxiliary, "; it must not be negative"));
  return e;
}

void check_groups(const Value& json, const Experts& e) {
  if (e.count % e.groups != 0)
    throw InputError(concat(place_of(json, "n_group").where().str(), ": ", e.count,
                            " experts do not divide into n_group ", e.groups, " equal groups"));
  check_part(json, "topk_group", e.top_groups, e.groups, "groups");
  check_part(json, "num_experts_per_tok", e.top_k, e.top_groups * (e.count / e.groups),
             "experts in the groups that a token may use");
}

}  // namespace tessera::architectures
