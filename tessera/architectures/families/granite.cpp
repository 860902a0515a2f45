// Granite (IBM 2024; transformers/models/granite): multipliers of embeddings, residuals, scores and logits.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_granite(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  refuse_other(json, "hidden_act", {"silu"});
  read_biases(json, s);
  s.multipliers = {.embedding = positive_real(json, "embedding_multiplier", 1),
                   .residual = positive_real(json, "residual_multiplier", 1),
                   .logits = 1 / positive_real(json, "logits_scaling", 1)};
  s.score_scale = positive_real(json, "attention_multiplier", 1);
  s.rope = parse_rope(json, s.head_size, s.positions);
}

}  // namespace

const Architecture granite = {"granite", "GraniteForCausalLM", "GraniteDecoderLayer", read_granite, llama_tensor_name};

}  // namespace tessera::architectures
