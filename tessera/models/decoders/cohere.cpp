#include <tessera/models/decoders/cohere.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

namespace tessera::models {
using config::flag, config::positive_or, config::positive_real, config::refuse_other;
namespace {

LlamaConfig read_cohere(const Value& json, double theta) {
  LlamaConfig c = read_sizes(json, {.tied = true});
  refuse_other(json, "hidden_act", {"silu"});
  if (flag(json, "use_qk_norm", false))
    throw InputError(concat(json.at("use_qk_norm").where().str(),
                            ": use_qk_norm (norms with weights for each head) is not supported"));
  c.norms = {.kind = NormKind::layer, .eps = positive_real(json, "layer_norm_eps", 1e-5)};
  c.residual = Residual::parallel_one;
  c.interleaved = true;
  c.query_bias = c.output_bias = flag(json, "attention_bias", false);
  c.multipliers.logits = positive_real(json, "logit_scale", 0.0625);
  c.rope = parse_rope(json, c.head_size, c.max_positions, {.theta = theta});
  return c;
}

}  // namespace

LlamaConfig parse_cohere_config(const Value& json) { return read_cohere(json, 500000); }

LlamaConfig parse_cohere2_config(const Value& json) {
  LlamaConfig c = read_cohere(json, 10000);
  c.windows = windows_in_turn(json, c.layers, positive_or(json, "sliding_window", 4096),
                              positive_or(json, "sliding_window_pattern", 4));
  for (std::size_t i = 0; i < c.windows.size(); ++i)
    if (c.windows[i] == 0) c.rotations[i] = LayerRope::none;
  return c;
}

}  // namespace tessera::models
