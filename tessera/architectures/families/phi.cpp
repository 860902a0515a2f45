// Phi-1, 1.5 and 2 (2023; transformers/models/phi): parallel attention and MLP after one layer norm, biases everywhere,
// including the head, partly rotated heads.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_phi(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  s.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "layer_norm_eps", 1e-5)};
  s.gated = false;
  s.activation = read_activation(json, "hidden_act", Activation::gelu_tanh);
  s.residual = Residual::parallel_one;
  s.query_bias = s.output_bias = s.mlp_bias = true;
  refuse_flag(json, "tie_word_embeddings", " is not supported: Phi's head has its own matrix and a bias");
  s.head_bias = true;
  s.head_norm = flag(json, "qk_layernorm", false);
  const double residual = probability(json, "resid_pdrop", 0);
  s.drops = {.embedding = probability(json, "embd_pdrop", 0), .attention = residual, .mlp = residual};
  s.names = {.norm = "final_layernorm",
             .output = "dense",
             .query_norm = "q_layernorm",
             .key_norm = "k_layernorm",
             .up = "fc1",
             .down = "fc2"};
  s.rope = parse_rope(json, s.head_size, s.positions, {.part = 0.5});
}

}  // namespace

const Architecture phi = {"phi", "PhiForCausalLM", "PhiDecoderLayer", read_phi, llama_tensor_name};

}  // namespace tessera::architectures
