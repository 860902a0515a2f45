#include <tessera/models/decoders/olmo.h>

#include <tessera/config/model/config_value.h>

namespace tessera::models {
using config::flag, config::given, config::positive_or, config::positive_real, config::refuse_other;
namespace {

LlamaConfig read_olmo(const Value& json) {
  LlamaConfig c = read_sizes(json, {});
  refuse_other(json, "hidden_act", {"silu"});
  c.query_bias = c.output_bias = flag(json, "attention_bias", false);
  return c;
}

/// 2 and 3, but for the rotation.
LlamaConfig read_olmo2(const Value& json) {
  LlamaConfig c = read_olmo(json);
  c.norms.eps = positive_real(json, "rms_norm_eps", 1e-5);
  c.norms.before = false;
  c.norms.after = true;
  c.query_key_norm = c.norm_of_all_heads = true;
  return c;
}

}  // namespace

LlamaConfig parse_olmo_config(const Value& json) {
  LlamaConfig c = read_olmo(json);
  c.norms = {.kind = NormKind::layer, .weight = false, .eps = 1e-5};
  c.clip_qkv = given(json, "clip_qkv") ? positive_real(json, "clip_qkv", 0) : 0;
  c.rope = parse_rope(json, c.head_size, c.max_positions);
  return c;
}

LlamaConfig parse_olmo2_config(const Value& json) {
  LlamaConfig c = read_olmo2(json);
  c.rope = parse_rope(json, c.head_size, c.max_positions);
  return c;
}

LlamaConfig parse_olmo3_config(const Value& json) {
  LlamaConfig c = read_olmo2(json);
  c.windows = windows_in_turn(json, c.layers, positive_or(json, "sliding_window", 4096), 4);
  const Value* both = given(json, "rope_parameters");
  const auto of = [&](const char* layers) { return both ? given(*both, layers) : nullptr; };
  const RopeConfig known = {
      .theta = positive_real(json, "rope_theta", 500000), .dim = c.head_size, .max_positions = c.max_positions};
  const Value* const full = of("full_attention");
  c.rope = read_rope(json, full ? full : given(json, "rope_scaling"), known);
  c.local_rope = read_rope(json, of("sliding_attention"), known);
  for (std::size_t i = 0; i < c.windows.size(); ++i)
    if (c.windows[i] > 0) c.rotations[i] = LayerRope::local;
  return c;
}

}  // namespace tessera::models
