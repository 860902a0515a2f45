// Gemma 1, 2 and 3, text (Gemma Team 2024, 2024, 2025; transformers/models/{gemma,gemma2,gemma3}): norms with weight 1
// + w, embeddings times sqrt(C), GELU gates; from 2 on, norms on both sides and windows in some layers; soft-caps (2);
// norms of q and k, and a separate rotation for windowed layers (3).

#include <tessera/architectures/reading.h>

#include <cmath>

namespace tessera::architectures {
namespace {

void read_any_gemma(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.head_size = 256, .tied = true});
  refuse_flag(json, "use_bidirectional_attention", " is not supported: this is a causal model");
  s.norms.from_one = s.norms.begins_at_zero = true;
  s.gate = Gate::gelu_tanh;
  s.query_bias = s.output_bias = flag(json, "attention_bias", false);
  s.multipliers.embedding = std::sqrt(static_cast<double>(s.hidden));
}

double cap(const Value& json, const char* key, double otherwise) {
  const Value* v = json.find(key);
  return v && v->is_null() ? 0 : positive_real(json, key, otherwise);
}

/// Reads Gemma 2 and 3, which have a separate scale of scores; in every `period` layers the last one has no window.
void read_with_windows(const Value& json, ModelSpec& s, std::int64_t period) {
  read_any_gemma(json, s);
  refuse_other(json, "hidden_activation", {"gelu_pytorch_tanh"});
  s.norms.after = true;
  s.score_scale = 1 / std::sqrt(positive_real(json, "query_pre_attn_scalar", 256));
  s.windows = windows_in_turn(json, s.layers, positive_or(json, "sliding_window", 4096), period);
}

void read_gemma(const Value& json, ModelSpec& s) {
  read_any_gemma(json, s);
  // The first releases write "gelu" for the tanh approximation; hidden_activation was added later.
  refuse_other(json, "hidden_act", {"gelu_pytorch_tanh", "gelu"});
  refuse_other(json, "hidden_activation", {"gelu_pytorch_tanh"});
  s.rope = parse_rope(json, s.head_size, s.positions);
}

void read_gemma2(const Value& json, ModelSpec& s) {
  read_with_windows(json, s, 2);
  s.caps.scores = cap(json, "attn_logit_softcapping", 50);
  s.caps.logits = cap(json, "final_logit_softcapping", 30);
  s.rope = parse_rope(json, s.head_size, s.positions);
}

void read_gemma3(const Value& json, ModelSpec& s) {
  read_with_windows(json, s, positive_or(json, "sliding_window_pattern", 6));
  s.caps.logits = cap(json, "final_logit_softcapping", 0);  // scores are not capped, even if config.json sets a cap
  s.head_norm = true;
  const Value* both = given(json, "rope_parameters");
  const auto of = [&](const char* layers) { return both ? given(*both, layers) : nullptr; };
  const auto known = [&](const char* key, double theta) {
    return Rope{
        .theta = positive_real(json, key, theta), .dim = s.head_size, .max_positions = s.positions, .stretched = true};
  };
  const Value* const scaling = of("full_attention");
  s.rope = read_rope(json, scaling ? scaling : given(json, "rope_scaling"), known("rope_theta", 1e6));
  s.local_rope = read_rope(json, of("sliding_attention"), known("rope_local_base_freq", 10000));
  rotate_by_window(s, LayerRope::usual, LayerRope::local);
}

}  // namespace

const Architecture gemma = {"gemma", "GemmaForCausalLM", "GemmaDecoderLayer", read_gemma, tied_tensor_name};
const Architecture gemma2 = {"gemma2", "Gemma2ForCausalLM", "Gemma2DecoderLayer", read_gemma2, tied_tensor_name};
const Architecture gemma3_text = {"gemma3_text", "Gemma3ForCausalLM", "Gemma3DecoderLayer", read_gemma3,
                                  tied_tensor_name};

}  // namespace tessera::architectures
