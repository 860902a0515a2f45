#include <tessera/config/core/model_presets.h>

namespace tessera::config {
namespace {

Value gpt2(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t vocabulary, std::int64_t positions,
           double dropout) {
  const auto end_of_text = Value::of(vocabulary - 1);
  return Value::make_object({
      {"activation_function", Value::of("gelu_new")},
      {"architectures", Value::make_array({Value::of("GPT2LMHeadModel")})},
      {"attn_pdrop", Value::of(dropout)},
      {"bos_token_id", end_of_text},
      {"embd_pdrop", Value::of(dropout)},
      {"eos_token_id", end_of_text},
      {"initializer_range", Value::of(0.02)},
      {"layer_norm_epsilon", Value::of(1e-5)},
      {"model_type", Value::of("gpt2")},
      {"n_embd", Value::of(width)},
      {"n_head", Value::of(heads)},
      {"n_inner", Value()},
      {"n_layer", Value::of(layers)},
      {"n_positions", Value::of(positions)},
      {"reorder_and_upcast_attn", Value::of(false)},
      {"resid_pdrop", Value::of(dropout)},
      {"scale_attn_by_inverse_layer_idx", Value::of(false)},
      {"scale_attn_weights", Value::of(true)},
      {"tie_word_embeddings", Value::of(true)},
      {"torch_dtype", Value::of("float32")},
      {"use_cache", Value::of(true)},
      {"vocab_size", Value::of(vocabulary)},
  });
}

/// Llama 3 in small: grouped queries, a tied head.
Value llama(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t key_heads,
            std::int64_t intermediate, std::int64_t vocabulary, std::int64_t positions) {
  const auto end_of_text = Value::of(vocabulary - 1);
  return Value::make_object({
      {"architectures", Value::make_array({Value::of("LlamaForCausalLM")})},
      {"attention_bias", Value::of(false)},
      {"attention_dropout", Value::of(0.0)},
      {"bos_token_id", end_of_text},
      {"eos_token_id", end_of_text},
      {"head_dim", Value::of(width / heads)},
      {"hidden_act", Value::of("silu")},
      {"hidden_size", Value::of(width)},
      {"initializer_range", Value::of(0.02)},
      {"intermediate_size", Value::of(intermediate)},
      {"max_position_embeddings", Value::of(positions)},
      {"mlp_bias", Value::of(false)},
      {"model_type", Value::of("llama")},
      {"num_attention_heads", Value::of(heads)},
      {"num_hidden_layers", Value::of(layers)},
      {"num_key_value_heads", Value::of(key_heads)},
      {"pretraining_tp", Value::of(1)},
      {"rms_norm_eps", Value::of(1e-5)},
      {"rope_scaling", Value()},
      {"rope_theta", Value::of(10000.0)},
      {"tie_word_embeddings", Value::of(true)},
      {"torch_dtype", Value::of("float32")},
      {"use_cache", Value::of(true)},
      {"vocab_size", Value::of(vocabulary)},
  });
}

}  // namespace

std::optional<Value> model_preset(const std::string& name) {
  if (name == "gpt2") return gpt2(12, 768, 12, 50257, 1024, 0.1);
  if (name == "gpt2-tiny") return gpt2(4, 256, 4, 8192, 256, 0.0);
  if (name == "llama-tiny") return llama(4, 256, 4, 2, 688, 8192, 1024);
  return std::nullopt;
}

}  // namespace tessera::config
