// Cohere's Command R (2024) and Command A, R7B (2025; transformers/models/{cohere,cohere2}): parallel attention and MLP
// after one layer norm, neighbouring elements rotated as pairs, scaled logits; in version 2, windows in three of four
// layers and no rotation in the fourth.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_cohere(const Value& json, ModelSpec& s) {
  const bool second = s.type == "cohere2";
  read_sizes(json, s, {.tied = true});
  refuse_other(json, "hidden_act", {"silu"});
  refuse_flag(json, "use_qk_norm", " (norms with weights per head) is not supported");
  s.norms = {.kind = NormKind::layer, .eps = positive_real(json, "layer_norm_eps", 1e-5)};
  s.residual = Residual::parallel_one;
  s.interleaved = true;
  s.query_bias = s.output_bias = flag(json, "attention_bias", false);
  s.multipliers.logits = positive_real(json, "logit_scale", 0.0625);
  s.rope = parse_rope(json, s.head_size, s.positions, {.theta = second ? 10000. : 500000.});
  if (!second) return;
  s.windows = windows_in_turn(json, s.layers, positive_or(json, "sliding_window", 4096),
                              positive_or(json, "sliding_window_pattern", 4));
  rotate_by_window(s, LayerRope::none, LayerRope::usual);
}

}  // namespace

const Architecture cohere = {"cohere", "CohereForCausalLM", "CohereDecoderLayer", read_cohere, tied_tensor_name};
const Architecture cohere2 = {"cohere2", "Cohere2ForCausalLM", "Cohere2DecoderLayer", read_cohere, tied_tensor_name};

}  // namespace tessera::architectures
