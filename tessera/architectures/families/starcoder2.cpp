// StarCoder2 (Lozhkov et al. 2024; transformers/models/starcoder2): layer norms, biases, an MLP without a gate.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_starcoder2(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.key_heads = 2, .tied = true});
  s.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "norm_epsilon", 1e-5)};
  s.gated = false;
  s.activation = read_activation(json, "hidden_act", Activation::gelu_tanh);
  s.query_bias = s.output_bias = s.mlp_bias = flag(json, "use_bias", true);
  s.initializer_range = positive_real(json, "initializer_range", 0.018042);
  const double residual = probability(json, "residual_dropout", 0);
  s.drops = {.embedding = probability(json, "embedding_dropout", 0), .attention = residual, .mlp = residual};
  s.names = {.up = "c_fc", .down = "c_proj"};
  read_one_window(json, s);
  s.rope = parse_rope(json, s.head_size, s.positions);
}

}  // namespace

const Architecture starcoder2 = {
    .model_type = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .hf_block = "Starcoder2DecoderLayer",
    .read = read_starcoder2,
    .tensor_name = tied_tensor_name,
    .preset = R"({"embedding_dropout": 0.0, "hidden_act": "gelu_pytorch_tanh", "intermediate_size": 1024,
                  "norm_epsilon": 1e-5, "residual_dropout": 0.0, "sliding_window": null, "use_bias": true})"};

}  // namespace tessera::architectures
