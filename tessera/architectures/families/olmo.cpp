// OLMo 1, 2 and 3 and OLMoE (Groeneveld et al. 2024; OLMo Team 2025, 2025; Muennighoff et al. 2024;
// transformers/models/{olmo,olmo2,olmo3,olmoe}): layer norms without parameters (1); RMS norms after attention and MLP,
// and over all heads of q and of k (2, 3); windows in three of four layers, whose rotation is not scaled (3).

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_bounds(const Value& json, ModelSpec& s) {
  if (given(json, "clip_qkv")) s.clip_qkv = positive_real(json, "clip_qkv", 0);
}

void read_any_olmo(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  refuse_other(json, "hidden_act", {"silu"});
  s.query_bias = s.output_bias = flag(json, "attention_bias", false);
}

void read_olmo(const Value& json, ModelSpec& s) {
  read_any_olmo(json, s);
  s.norms = {.kind = NormKind::layer, .weight = false, .eps = 1e-5};
  read_bounds(json, s);
  s.rope = parse_rope(json, s.head_size, s.positions);
}

void read_olmo2(const Value& json, ModelSpec& s) {
  read_any_olmo(json, s);
  s.norms.eps = positive_real(json, "rms_norm_eps", 1e-5);
  s.norms.before = false;
  s.norms.after = true;
  s.head_norm = s.wide_head_norm = true;
  if (s.type == "olmo2") s.rope = parse_rope(json, s.head_size, s.positions);
}

void read_olmo3(const Value& json, ModelSpec& s) {
  read_olmo2(json, s);
  s.windows = windows_in_turn(json, s.layers, positive_or(json, "sliding_window", 4096), 4);
  const Value* both = given(json, "rope_parameters");
  const auto of = [&](const char* layers) { return both ? given(*both, layers) : nullptr; };
  const Rope known = {
      .theta = positive_real(json, "rope_theta", 500000), .dim = s.head_size, .max_positions = s.positions};
  const Value* const full = of("full_attention");
  s.rope = read_rope(json, full ? full : given(json, "rope_scaling"), known);
  s.local_rope = read_rope(json, of("sliding_attention"), known);
  rotate_by_window(s, LayerRope::usual, LayerRope::local);
}

void read_olmoe(const Value& json, ModelSpec& s) {
  read_any_olmo(json, s);
  s.head_norm = s.wide_head_norm = true;
  read_bounds(json, s);
  refuse_slices(json);
  s.rope = parse_rope(json, s.head_size, s.positions);
  s.sparse.assign(static_cast<std::size_t>(s.layers), true);
  s.experts = read_experts(json, s,
                           {.count_key = given(json, "num_experts") ? "num_experts" : "num_local_experts",
                            .count = 64,
                            .top_k = 8,
                            .auxiliary = 0.01});
}

}  // namespace

const Architecture olmo = {"olmo", "OlmoForCausalLM", "OlmoDecoderLayer", read_olmo, llama_tensor_name};
const Architecture olmo2 = {"olmo2", "Olmo2ForCausalLM", "Olmo2DecoderLayer", read_olmo2, llama_tensor_name};
const Architecture olmo3 = {"olmo3", "Olmo3ForCausalLM", "Olmo3DecoderLayer", read_olmo3, llama_tensor_name};
const Architecture olmoe = {.model_type = "olmoe",
                            .architecture = "OlmoeForCausalLM",
                            .hf_block = "OlmoeDecoderLayer",
                            .read = read_olmoe,
                            .tensor_name = llama_tensor_name,
                            .predicts = true};

}  // namespace tessera::architectures
