// Llama 1-3 (Touvron et al. 2023; transformers/models/llama) and Mistral (Jiang et al. 2023;
// transformers/models/mistral).

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_llama(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  refuse_other(json, "hidden_act", {"silu"});
  read_biases(json, s);
  refuse_slices(json);
  s.rope = parse_rope(json, s.head_size, s.positions);
}

/// Reads Mistral, whose layers all have the same window.
void read_mistral(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.key_heads = 8});
  refuse_other(json, "hidden_act", {"silu"});
  read_one_window(json, s);
  refuse_slices(json);
  s.rope = parse_rope(json, s.head_size, s.positions);
}

}  // namespace

const Architecture llama = {.model_type = "llama",
                            .architecture = "LlamaForCausalLM",
                            .hf_block = "LlamaDecoderLayer",
                            .read = read_llama,
                            .tensor_name = llama_tensor_name,
                            .predicts = true,
                            .preset = R"({"attention_bias": false, "mlp_bias": false, "pretraining_tp": 1})"};
const Architecture mistral = {.model_type = "mistral",
                              .architecture = "MistralForCausalLM",
                              .hf_block = "MistralDecoderLayer",
                              .read = read_mistral,
                              .tensor_name = llama_tensor_name,
                              .predicts = true};

}  // namespace tessera::architectures
