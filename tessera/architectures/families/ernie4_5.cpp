// ERNIE 4.5, dense (Baidu 2025; transformers/models/ernie4_5): a Llama with neighbouring elements rotated as pairs, and
// one switch for all biases.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_ernie(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.key_heads = 2, .head_size = 128, .tied = true});
  refuse_other(json, "hidden_act", {"silu"});
  s.query_bias = s.output_bias = s.mlp_bias = flag(json, "use_bias", false);
  s.norms.eps = positive_real(json, "rms_norm_eps", 1e-5);
  s.interleaved = true;
  s.rope = parse_rope(json, s.head_size, s.positions, {.theta = 500000});
}

}  // namespace

const Architecture ernie4_5 = {"ernie4_5", "Ernie4_5ForCausalLM", "Ernie4_5DecoderLayer", read_ernie, tied_tensor_name};

}  // namespace tessera::architectures
