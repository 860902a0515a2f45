#include <tessera/models/decoders/gemma.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

#include <cmath>

namespace tessera::models {
using config::flag, config::given, config::positive_or, config::positive_real, config::refuse_other;
namespace {

/// What all three have in common, but for the rotation.
LlamaConfig read_gemma(const Value& json) {
  LlamaConfig c = read_sizes(json, {.head_size = 256, .tied = true});
  if (flag(json, "use_bidirectional_attention", false))
    throw InputError(concat(json.at("use_bidirectional_attention").where().str(),
                            ": use_bidirectional_attention is not supported: this is a causal model"));
  c.norms.from_one = c.norms.begins_at_zero = true;
  c.gate = nn::GateKind::gelu_tanh;
  c.query_bias = c.output_bias = flag(json, "attention_bias", false);
  c.multipliers.embedding = std::sqrt(static_cast<double>(c.hidden));
  return c;
}

double cap(const Value& json, const char* key, double otherwise) {
  const Value* v = json.find(key);
  return v && v->is_null() ? 0 : positive_real(json, key, otherwise);
}

/// Gemma 2 and 3: norms on both sides, scores by a number of their own, and of every `period` layers the last sees all,
/// the others a window; or as layer_types says.
LlamaConfig read_gemma_with_windows(const Value& json, std::int64_t period) {
  LlamaConfig c = read_gemma(json);
  refuse_other(json, "hidden_activation", {"gelu_pytorch_tanh"});
  c.norms.after = true;
  c.score_scale = 1 / std::sqrt(positive_real(json, "query_pre_attn_scalar", 256));
  c.windows = windows_in_turn(json, c.layers, positive_or(json, "sliding_window", 4096), period);
  return c;
}

}  // namespace

LlamaConfig parse_gemma_config(const Value& json) {
  LlamaConfig c = read_gemma(json);
  // What the first releases call "gelu" is meant in its tanh form; hidden_activation came later.
  refuse_other(json, "hidden_act", {"gelu_pytorch_tanh", "gelu"});
  refuse_other(json, "hidden_activation", {"gelu_pytorch_tanh"});
  c.rope = parse_rope(json, c.head_size, c.max_positions);
  return c;
}

LlamaConfig parse_gemma2_config(const Value& json) {
  LlamaConfig c = read_gemma_with_windows(json, 2);
  c.caps.scores = cap(json, "attn_logit_softcapping", 50);
  c.caps.logits = cap(json, "final_logit_softcapping", 30);
  c.rope = parse_rope(json, c.head_size, c.max_positions);
  return c;
}

LlamaConfig parse_gemma3_config(const Value& json) {
  LlamaConfig c = read_gemma_with_windows(json, positive_or(json, "sliding_window_pattern", 6));
  c.caps.logits = cap(json, "final_logit_softcapping", 0);  // scores are not capped, whatever config.json says
  c.query_key_norm = true;
  const Value* both = given(json, "rope_parameters");
  const auto of = [&](const char* layers) { return both ? given(*both, layers) : nullptr; };
  const Value* const scaling = of("full_attention");
  c.rope = read_rope(json, scaling ? scaling : given(json, "rope_scaling"),
                     {.theta = positive_real(json, "rope_theta", 1e6),
                      .dim = c.head_size,
                      .max_positions = c.max_positions,
                      .stretched = true});
  c.local_rope = read_rope(json, of("sliding_attention"),
                           {.theta = positive_real(json, "rope_local_base_freq", 10000),
                            .dim = c.head_size,
                            .max_positions = c.max_positions,
                            .stretched = true});
  for (std::size_t i = 0; i < c.windows.size(); ++i)
    if (c.windows[i] > 0) c.rotations[i] = LayerRope::local;
  return c;
}

}  // namespace tessera::models
