// StableLM (Bellagente et al. 2024; transformers/models/stablelm): layer norms, a quarter of each head rotated.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_stablelm(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  refuse_other(json, "hidden_act", {"silu"});
  refuse_flag(json, "qk_layernorm", " (norms with weights per head) is not supported");
  s.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "layer_norm_eps", 1e-5)};
  s.query_bias = flag(json, "use_qkv_bias", false);
  s.residual = flag(json, "use_parallel_residual", false) ? Residual::parallel_one : Residual::serial;
  s.drops.mlp = probability(json, "hidden_dropout", 0);
  s.rope = parse_rope(json, s.head_size, s.positions, {.part = 0.25});
}

}  // namespace

const Architecture stablelm = {"stablelm", "StableLmForCausalLM", "StableLmDecoderLayer", read_stablelm,
                               llama_tensor_name};

}  // namespace tessera::architectures
