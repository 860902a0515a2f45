// Helium (Kyutai 2025; transformers/models/helium): a Llama with neighbouring elements rotated as pairs, without a bias
// in attention's output map.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_helium(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.key_heads = 20, .head_size = 128});
  refuse_other(json, "hidden_act", {"silu"});
  if (s.query_width() != s.hidden)
    throw InputError(concat(json.at("hidden_size").where().str(), ": hidden_size ", s.hidden, " with ", s.heads,
                            " heads of ", s.head_size, ": Helium's o_proj is square, so their widths must be equal"));
  read_biases(json, s);
  s.output_bias = false;
  s.norms.eps = positive_real(json, "rms_norm_eps", 1e-8);
  s.interleaved = true;
  s.rope = parse_rope(json, s.head_size, s.positions, {.theta = 100000});
}

}  // namespace

const Architecture helium = {"helium", "HeliumForCausalLM", "HeliumDecoderLayer", read_helium, llama_tensor_name};

}  // namespace tessera::architectures
