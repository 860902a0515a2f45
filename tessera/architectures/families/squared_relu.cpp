// Arcee (2025) and Nemotron (NVIDIA 2024; transformers/models/{arcee,nemotron}): squared ReLU without a gate; Nemotron
// has layer norms with weight 1 + w and rotates half of each head.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_any_squared_relu(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  read_biases(json, s);
  s.gated = false;
  s.activation = read_activation(json, "hidden_act", Activation::relu_squared);
}

void read_arcee(const Value& json, ModelSpec& s) {
  read_any_squared_relu(json, s);
  s.norms.eps = positive_real(json, "rms_norm_eps", 1e-5);
  s.rope = parse_rope(json, s.head_size, s.positions);
}

void read_nemotron(const Value& json, ModelSpec& s) {
  read_any_squared_relu(json, s);
  s.norms = {.kind = NormKind::layer, .bias = true, .from_one = true, .eps = positive_real(json, "norm_eps", 1e-5)};
  s.rope = parse_rope(json, s.head_size, s.positions, {.part = 0.5});
}

}  // namespace

const Architecture arcee = {"arcee", "ArceeForCausalLM", "ArceeDecoderLayer", read_arcee, llama_tensor_name};
const Architecture nemotron = {"nemotron", "NemotronForCausalLM", "NemotronDecoderLayer", read_nemotron,
                               llama_tensor_name};

}  // namespace tessera::architectures
