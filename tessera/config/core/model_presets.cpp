#include <tessera/config/core/model_presets.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/sections/model_config.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

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

/// What all families in Llama's manner have. Sizes are those of Llama 3 in small: grouped queries, a tied head.
Value decoder(const char* type, const char* architecture, const std::vector<std::pair<std::string, Value>>& others) {
  constexpr std::int64_t width = 256, heads = 4, vocabulary = 8192;
  const auto end_of_text = Value::of(vocabulary - 1);
  std::map<std::string, Value> members = {
      {"architectures", Value::make_array({Value::of(architecture)})},
      {"attention_dropout", Value::of(0.0)},
      {"bos_token_id", end_of_text},
      {"eos_token_id", end_of_text},
      {"head_dim", Value::of(width / heads)},
      {"hidden_act", Value::of("silu")},
      {"hidden_size", Value::of(width)},
      {"initializer_range", Value::of(0.02)},
      {"intermediate_size", Value::of(688)},
      {"max_position_embeddings", Value::of(1024)},
      {"model_type", Value::of(type)},
      {"num_attention_heads", Value::of(heads)},
      {"num_hidden_layers", Value::of(4)},
      {"num_key_value_heads", Value::of(heads / 2)},
      {"rms_norm_eps", Value::of(1e-5)},
      {"rope_scaling", Value()},
      {"rope_theta", Value::of(10000.0)},
      {"tie_word_embeddings", Value::of(true)},
      {"torch_dtype", Value::of("float32")},
      {"use_cache", Value::of(true)},
      {"vocab_size", Value::of(vocabulary)},
  };
  for (const auto& [key, value] : others) members.insert_or_assign(key, value);
  return Value::make_object({members.begin(), members.end()});
}

Value opt() {
  constexpr std::int64_t width = 256, vocabulary = 8192;
  const auto end_of_text = Value::of(vocabulary - 1);
  return Value::make_object({
      {"activation_function", Value::of("relu")},
      {"architectures", Value::make_array({Value::of("OPTForCausalLM")})},
      {"attention_dropout", Value::of(0.0)},
      {"bos_token_id", end_of_text},
      {"do_layer_norm_before", Value::of(true)},
      {"dropout", Value::of(0.0)},
      {"embedding_dropout", Value::of(0.0)},
      {"enable_bias", Value::of(true)},
      {"eos_token_id", end_of_text},
      {"ffn_dim", Value::of(4 * width)},
      {"hidden_size", Value::of(width)},
      {"init_std", Value::of(0.02)},
      {"layer_norm_elementwise_affine", Value::of(true)},
      {"max_position_embeddings", Value::of(1024)},
      {"model_type", Value::of("opt")},
      {"num_attention_heads", Value::of(4)},
      {"num_hidden_layers", Value::of(4)},
      {"pad_token_id", Value()},
      {"tie_word_embeddings", Value::of(true)},
      {"torch_dtype", Value::of("float32")},
      {"use_cache", Value::of(true)},
      {"vocab_size", Value::of(vocabulary)},
      {"word_embed_proj_dim", Value()},
  });
}

Value llama() {
  return decoder(
      "llama", "LlamaForCausalLM",
      {{"attention_bias", Value::of(false)}, {"mlp_bias", Value::of(false)}, {"pretraining_tp", Value::of(1)}});
}

/// Every token sees 2 of 4 experts that are a quarter as wide as the dense layer.
Value deepseek() {
  return decoder("deepseek_v3", "DeepseekV3ForCausalLM",
                 {{"attention_bias", Value::of(false)},
                  {"head_dim", Value::of(32)},
                  {"first_k_dense_replace", Value::of(1)},
                  {"kv_lora_rank", Value::of(64)},
                  {"moe_intermediate_size", Value::of(172)},
                  {"n_group", Value::of(1)},
                  {"n_routed_experts", Value::of(4)},
                  {"n_shared_experts", Value::of(1)},
                  {"norm_topk_prob", Value::of(true)},
                  {"num_experts_per_tok", Value::of(2)},
                  {"num_key_value_heads", Value::of(4)},
                  {"q_lora_rank", Value()},
                  {"qk_nope_head_dim", Value::of(32)},
                  {"qk_rope_head_dim", Value::of(32)},
                  {"rope_interleave", Value::of(true)},
                  {"routed_scaling_factor", Value::of(1.0)},
                  {"topk_group", Value::of(1)},
                  {"v_head_dim", Value::of(64)}});
}

Value qwen_experts(const char* type, const char* architecture, std::vector<std::pair<std::string, Value>> others) {
  const std::vector<std::pair<std::string, Value>> experts = {
      {"decoder_sparse_step", Value::of(1)},   {"mlp_only_layers", Value()},  {"moe_intermediate_size", Value::of(172)},
      {"norm_topk_prob", Value::of(true)},     {"num_experts", Value::of(4)}, {"num_experts_per_tok", Value::of(2)},
      {"use_sliding_window", Value::of(false)}};
  others.insert(others.end(), experts.begin(), experts.end());
  return decoder(type, architecture, others);
}

/// Megatron-LM's GPT, whose switches mix as one likes (models/decoders/megatron_gpt.h).
Value megatron_gpt() {
  return decoder("megatron_gpt", "MegatronGptForCausalLM",
                 {{"add_bias_linear", Value::of(true)},
                  {"add_qkv_bias", Value::of(true)},
                  {"attn_output_gate", Value::of(false)},
                  {"decoder_sparse_step", Value::of(1)},
                  {"gated_linear_unit", Value::of(false)},
                  {"hidden_act", Value::of("gelu")},
                  {"hidden_dropout", Value::of(0.0)},
                  {"intermediate_size", Value::of(1024)},
                  {"kv_lora_rank", Value()},
                  {"layer_types", Value()},
                  {"layernorm_zero_centered_gamma", Value::of(false)},
                  {"linear_conv_kernel_dim", Value()},
                  {"linear_key_head_dim", Value()},
                  {"linear_num_key_heads", Value()},
                  {"linear_num_value_heads", Value()},
                  {"linear_value_head_dim", Value()},
                  {"mlp_only_layers", Value()},
                  {"moe_intermediate_size", Value()},
                  {"n_group", Value::of(1)},
                  {"norm_epsilon", Value::of(1e-5)},
                  {"norm_topk_prob", Value::of(false)},
                  {"normalization", Value::of("LayerNorm")},
                  {"num_experts", Value()},
                  {"num_experts_per_tok", Value::of(2)},
                  {"partial_rotary_factor", Value::of(1.0)},
                  {"position_embedding_type", Value::of("learned_absolute")},
                  {"q_lora_rank", Value()},
                  {"qk_layernorm", Value::of(false)},
                  {"qk_nope_head_dim", Value()},
                  {"qk_rope_head_dim", Value()},
                  {"rope_scaling", Value()},
                  {"router_balancing", Value()},
                  {"router_jitter_noise", Value::of(0.0)},
                  {"router_scoring", Value::of("softmax_of_chosen")},
                  {"router_selection_bias", Value::of(false)},
                  {"routed_scaling_factor", Value::of(1.0)},
                  {"shared_expert_gate", Value::of(false)},
                  {"shared_expert_intermediate_size", Value()},
                  {"topk_group", Value::of(1)},
                  {"v_head_dim", Value()}});
}

struct Preset {
  const char* name;
  Value (*make)();
};
const Preset presets[] = {
    {"gpt2", [] { return gpt2(12, 768, 12, 50257, 1024, 0.1); }},
    {"gpt2-tiny", [] { return gpt2(4, 256, 4, 8192, 256, 0.0); }},
    {"llama-tiny", llama},
    {"qwen2-tiny", [] { return decoder("qwen2", "Qwen2ForCausalLM", {{"use_sliding_window", Value::of(false)}}); }},
    {"qwen3-tiny",
     [] {
       return decoder("qwen3", "Qwen3ForCausalLM",
                      {{"attention_bias", Value::of(false)}, {"use_sliding_window", Value::of(false)}});
     }},
    {"mixtral-tiny",
     [] {
       return decoder("mixtral", "MixtralForCausalLM",
                      {{"intermediate_size", Value::of(172)},
                       {"num_experts_per_tok", Value::of(2)},
                       {"num_local_experts", Value::of(4)},
                       {"router_jitter_noise", Value::of(0.0)},
                       {"sliding_window", Value()}});
     }},
    {"qwen2-moe-tiny",
     [] {
       return qwen_experts("qwen2_moe", "Qwen2MoeForCausalLM",
                           {{"qkv_bias", Value::of(true)}, {"shared_expert_intermediate_size", Value::of(172)}});
     }},
    {"qwen3-moe-tiny",
     [] { return qwen_experts("qwen3_moe", "Qwen3MoeForCausalLM", {{"attention_bias", Value::of(false)}}); }},
    {"deepseek-v3-tiny", deepseek},
    {"starcoder2-tiny",
     [] {
       return decoder("starcoder2", "Starcoder2ForCausalLM",
                      {{"embedding_dropout", Value::of(0.0)},
                       {"hidden_act", Value::of("gelu_pytorch_tanh")},
                       {"intermediate_size", Value::of(1024)},
                       {"norm_epsilon", Value::of(1e-5)},
                       {"residual_dropout", Value::of(0.0)},
                       {"sliding_window", Value()},
                       {"use_bias", Value::of(true)}});
     }},
    {"opt-tiny", opt},
    {"megatron-gpt-tiny", megatron_gpt},
};

}  // namespace

std::string model_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return join(names);
}

std::optional<Value> model_preset(const std::string& name) {
  for (const Preset& preset : presets)
    if (name == preset.name) return preset.make();
  return std::nullopt;
}

Value known_preset(const std::string& name) {
  if (auto known = model_preset(name)) return *std::move(known);
  throw InputError(
      concat("config_name \"", name, "\" is neither a file nor a preset; presets: ", model_preset_names()));
}

namespace {

/// The members that use_mup and its options are in config.json.
Value with_mup(Value model, const ModelConfig& config) {
  if (!config.use_mup) return model;
  model.set("use_mup", Value::of(true));
  if (config.mup_base_hidden_size > 0) model.set("mup_base_hidden_size", Value::of(config.mup_base_hidden_size));
  const ModelConfig defaults;
  for (const auto& [key, value, otherwise] :
       {std::tuple("mup_embedding_mult", config.mup_embedding_mult, defaults.mup_embedding_mult),
        std::tuple("mup_output_mult", config.mup_output_mult, defaults.mup_output_mult),
        std::tuple("mup_base_head_dim", config.mup_base_head_dim, defaults.mup_base_head_dim),
        std::tuple("mup_attn_scale_power", config.mup_attn_scale_power, defaults.mup_attn_scale_power)})
    if (value != otherwise) model.set(key, Value::of(value));
  return model;
}

}  // namespace

Value with_settings(const Value& model, const ModelConfig& config) {
  return with_mup(with_overrides(model, config.config_overrides), config);
}

Value model_from_scratch(const ModelConfig& config) {
  const std::string& name = config.config_name;
  if (name.empty())
    throw InputError("no model: give model_name_or_path (a folder) or config_name (config.json or a preset)");
  const std::string path = is_directory(name) ? path_join(name, "config.json") : name;
  return with_settings(path_exists(path) ? read_json(path) : known_preset(name), config);
}

}  // namespace tessera::config
