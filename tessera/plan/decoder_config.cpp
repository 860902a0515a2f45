#include <tessera/plan/model_config.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

namespace tessera::plan {
using config::flag, config::given, config::positive, config::positive_or, config::probability, config::sparse_layers;
namespace {

/// The biases that `attention_bias` and `mlp_bias` say.
void read_plain(const Value& json, Model& m, const SizeDefaults& defaults = {}) {
  read_sizes(json, m, defaults);
  m.query_bias = m.output_bias = flag(json, "attention_bias", false);
  m.mlp_bias = flag(json, "mlp_bias", false);
}

/// `window` where layer_types says sliding_attention; without layer_types in all layers but every `period`-th.
void read_turns(const Value& json, Model& m, std::int64_t window, std::int64_t period) {
  const Value* types = given(json, "layer_types");
  if (types && static_cast<std::int64_t>(types->items().size()) != m.layers)
    throw InputError(concat(types->where().str(), ": layer_types has ", types->items().size(), " entries for ",
                            m.layers, " layers"));
  m.windows.assign(static_cast<std::size_t>(m.layers), 0);
  for (std::size_t i = 0; i < m.windows.size(); ++i) {
    const bool slides =
        types ? types->items()[i].as_string() == "sliding_attention" : (static_cast<std::int64_t>(i) + 1) % period != 0;
    if (slides) m.windows[i] = window;
  }
}

void read_one_window(const Value& json, Model& m) {
  if (given(json, "sliding_window"))
    m.windows.assign(static_cast<std::size_t>(m.layers), positive(json, "sliding_window"));
}

}  // namespace

void check_divides(const Value& json, const char* whole, std::int64_t n, const char* by, std::int64_t d) {
  if (n % d == 0) return;
  throw InputError(concat((given(json, whole) ? *given(json, whole) : json).where().str(), ": ", whole, " ", n,
                          " is not a multiple of ", by, " ", d));
}

void read_sizes(const Value& json, Model& m, const SizeDefaults& defaults) {
  m.layers = positive(json, "num_hidden_layers");
  m.hidden = positive(json, "hidden_size");
  m.heads = positive(json, "num_attention_heads");
  m.key_heads = positive_or(json, "num_key_value_heads", defaults.key_heads > 0 ? defaults.key_heads : m.heads);
  m.inner = positive(json, "intermediate_size");
  m.vocabulary = positive(json, "vocab_size");
  m.positions = positive(json, "max_position_embeddings");
  const Value* size = given(json, "head_dim");
  if (!size && defaults.head_size == 0) check_divides(json, "hidden_size", m.hidden, "num_attention_heads", m.heads);
  m.head_size = size ? positive(json, "head_dim") : defaults.head_size > 0 ? defaults.head_size : m.hidden / m.heads;
  check_divides(json, "num_attention_heads", m.heads, "num_key_value_heads", m.key_heads);
  m.tied = flag(json, "tie_word_embeddings", defaults.tied);
}

void read_gemma(const Value& json, Model& m) {
  read_plain(json, m, {.head_size = 256, .tied = true});
  m.mlp_bias = false;
  m.gelu_gate = true;
  if (m.type == "gemma") return;
  m.norms.after = true;
  m.head_norm = m.type == "gemma3_text";
  const std::int64_t period = m.head_norm ? positive_or(json, "sliding_window_pattern", 6) : 2;
  read_turns(json, m, positive_or(json, "sliding_window", 4096), period);
}

void read_phi3(const Value& json, Model& m) {
  read_sizes(json, m, {});
  m.packing = Packing::blocks;
  m.dropout = probability(json, "resid_pdrop", 0);
  read_one_window(json, m);
}

void read_olmo(const Value& json, Model& m) {
  read_plain(json, m);
  m.mlp_bias = false;
  if (m.type == "olmo") {
    m.norms.weight = false;
    return;
  }
  m.norms.before = false;
  m.norms.after = true;
  m.head_norm = m.wide_head_norm = true;
  if (m.type == "olmo3") read_turns(json, m, positive_or(json, "sliding_window", 4096), 4);
}

void read_granite(const Value& json, Model& m) { read_plain(json, m); }

void read_smollm3(const Value& json, Model& m) {
  read_plain(json, m, {.key_heads = 4, .tied = true});
  const Value* rotated = given(json, "no_rope_layers");  // 1 where a layer is rotated
  const std::int64_t interval = positive_or(json, "no_rope_layer_interval", 4);
  if (given(json, "layer_types")) return read_turns(json, m, positive_or(json, "sliding_window", 4096), interval);
  if (!flag(json, "use_sliding_window", false) || !given(json, "sliding_window")) return;
  m.windows.assign(static_cast<std::size_t>(m.layers), 0);
  for (std::size_t i = 0; i < m.windows.size(); ++i) {
    const bool turns = rotated && i < rotated->items().size() ? rotated->items()[i].as_int() != 0
                                                              : (static_cast<std::int64_t>(i) + 1) % interval != 0;
    if (!turns) m.windows[i] = positive(json, "sliding_window");
  }
}

void read_squared(const Value& json, Model& m) {  // arcee, nemotron
  read_plain(json, m);
  m.gated = false;
  m.norms.bias = m.type == "nemotron";
}

void read_stablelm(const Value& json, Model& m) {
  read_sizes(json, m, {});
  m.query_bias = flag(json, "use_qkv_bias", false);
  m.norms.bias = true;
  m.parallel = m.norms.shared = flag(json, "use_parallel_residual", false);
  m.dropout = probability(json, "hidden_dropout", 0);
}

void read_starcoder2(const Value& json, Model& m) {
  read_sizes(json, m, {.key_heads = 2, .tied = true});
  m.gated = false;
  m.query_bias = m.output_bias = m.mlp_bias = flag(json, "use_bias", true);
  m.norms.bias = true;
  m.names = layout::starcoder2_names;
  m.dropout = probability(json, "residual_dropout", 0);
  read_one_window(json, m);
}

void read_cohere(const Value& json, Model& m) {
  read_plain(json, m, {.tied = true});
  m.mlp_bias = false;
  m.parallel = m.norms.shared = true;
  if (m.type == "cohere2")
    read_turns(json, m, positive_or(json, "sliding_window", 4096), positive_or(json, "sliding_window_pattern", 4));
}

void read_gpt_neox(const Value& json, Model& m) {
  read_sizes(json, m, {});
  m.gated = false;
  m.query_bias = m.output_bias = flag(json, "attention_bias", true);
  m.mlp_bias = m.norms.bias = true;
  m.parallel = flag(json, "use_parallel_residual", true);
  m.packing = Packing::heads;
  m.names = layout::gpt_neox_names;
  m.dropout = probability(json, "hidden_dropout", 0);
}

void read_phi(const Value& json, Model& m) {
  read_sizes(json, m, {});
  m.gated = false;
  m.query_bias = m.output_bias = m.mlp_bias = m.norms.bias = true;
  m.head_bias = !m.tied;
  m.head_norm = flag(json, "qk_layernorm", false);
  m.parallel = m.norms.shared = true;
  m.names = layout::phi_names;
  m.dropout = probability(json, "resid_pdrop", 0);
}

void read_opt(const Value& json, Model& m) {
  Value named = json;
  named.set("intermediate_size", json.at("ffn_dim"));
  read_sizes(named, m, {.tied = true});
  m.gated = false;
  m.query_bias = m.output_bias = m.mlp_bias = flag(json, "enable_bias", true);
  m.norms.weight = m.norms.bias = flag(json, "layer_norm_elementwise_affine", true);
  m.position_rows = m.positions + 2;
  m.names = layout::opt_names;
  m.dropout = probability(json, "dropout", 0.1);
}

void read_megatron_gpt(const Value& json, Model& m) {
  read_sizes(json, m, {.tied = true});
  const auto says = [&](const char* key, std::string_view word) {
    const Value* v = given(json, key);
    return v && v->as_string() == word;
  };
  m.gated = flag(json, "gated_linear_unit", false);
  m.erf_gelu = !m.gated && (!given(json, "hidden_act") || says("hidden_act", "gelu"));
  m.output_bias = m.mlp_bias = flag(json, "add_bias_linear", true);
  m.query_bias = m.mlp_bias || flag(json, "add_qkv_bias", false);
  m.norms.bias = !says("normalization", "RMSNorm");
  m.head_norm = flag(json, "qk_layernorm", false);
  if (given(json, "kv_lora_rank")) {
    m.latent = read_latent(json);
    m.latent->normed = m.head_norm;
    m.head_norm = m.query_bias = false;
    m.head_size = m.latent->widest();
  }
  if (const Value* types = given(json, "layer_types")) {
    Linear l;
    l.key_heads = positive_or(json, "linear_num_key_heads", 16);
    l.value_heads = positive_or(json, "linear_num_value_heads", 32);
    l.key_size = positive_or(json, "linear_key_head_dim", 128);
    l.value_size = positive_or(json, "linear_value_head_dim", 128);
    l.kernel = positive_or(json, "linear_conv_kernel_dim", 4);
    for (const Value& type : types->items()) l.layers.push_back(type.as_string() == "linear_attention");
    if (static_cast<std::int64_t>(l.layers.size()) != m.layers)
      throw InputError(
          concat(types->where().str(), ": layer_types has ", l.layers.size(), " entries for ", m.layers, " layers"));
    m.linear = l;
  }
  m.output_gate = flag(json, "attn_output_gate", false);
  m.position_rows = says("position_embedding_type", "rope") ? 0 : m.positions;
  m.dropout = probability(json, "hidden_dropout", 0.1);
  if (!given(json, "num_experts")) return;
  Experts e;
  e.count = positive(json, "num_experts");
  e.top_k = positive_or(json, "num_experts_per_tok", 2);
  e.inner = positive_or(json, "moe_intermediate_size", m.inner);
  e.shared_inner =
      given(json, "shared_expert_intermediate_size") ? positive(json, "shared_expert_intermediate_size") : 0;
  e.shared_gate = flag(json, "shared_expert_gate", false);
  e.selection_bias = flag(json, "router_selection_bias", false);
  m.experts = e;
  m.sparse = sparse_layers(json, m.layers);
}

}  // namespace tessera::plan
