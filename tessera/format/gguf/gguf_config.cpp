// Creates config.json and generation_config.json as transformers writes them (in the spelling of v4, which v5 also
// reads).

#include <algorithm>

#include <tessera/format/gguf/gguf_model.h>

namespace tessera::format {
namespace {

Value id_or_null(const std::optional<std::int64_t>& id) { return id ? Value::of(*id) : Value(); }

Value gpt2_config(const GgufModel& model) {
  return Value::make_object({
      {"activation_function", Value::of("gelu_new")},
      {"attn_pdrop", Value::of(0.1)},
      {"embd_pdrop", Value::of(0.1)},
      {"initializer_range", Value::of(0.02)},
      {"layer_norm_epsilon", Value::of(model.norm_eps)},
      {"n_ctx", Value::of(model.context)},
      {"n_embd", Value::of(model.hidden)},
      {"n_head", Value::of(model.heads)},
      {"n_inner", model.intermediate == 4 * model.hidden ? Value() : Value::of(model.intermediate)},
      {"n_layer", Value::of(model.layers)},
      {"n_positions", Value::of(model.context)},
      {"reorder_and_upcast_attn", Value::of(false)},
      {"resid_pdrop", Value::of(0.1)},
      {"scale_attn_by_inverse_layer_idx", Value::of(false)},
      {"scale_attn_weights", Value::of(true)},
  });
}

Value cap_or_null(double cap) { return cap > 0 ? Value::of(cap) : Value(); }

/// Adds settings that a file does not contain, from llama.cpp (src/models/gemma*.cpp): the largest models scale scores
/// by the total width of all heads, the others by that of one head; Gemma 3's sliding-window layers use a RoPE base of
/// 10000.
Value gemma_config(const GgufModel& model, Value config) {
  config.set("hidden_act", Value::of("gelu_pytorch_tanh"));
  config.set("hidden_activation", Value::of("gelu_pytorch_tanh"));
  config.set("attention_bias", Value::of(false));
  if (!model.norms_after()) return config;
  const bool two = model.architecture == GgufArchitecture::gemma2;
  const bool largest = model.layers == (two ? 46 : 62);
  config.set("query_pre_attn_scalar", Value::of(largest ? model.hidden / model.heads : model.head_dim));
  config.set("attn_logit_softcapping", cap_or_null(model.score_cap));
  config.set("final_logit_softcapping", cap_or_null(model.logit_cap));
  if (model.sliding_window > 0) config.set("sliding_window", Value::of(model.sliding_window));
  if (two) return config;
  config.set("rope_local_base_freq", Value::of(10000.0));
  config.set("sliding_window_pattern", Value::of(6));
  return config;
}

Value phi3_config(const GgufModel& model, Value config) {
  config.set("embd_pdrop", Value::of(0.0));
  config.set("resid_pdrop", Value::of(0.0));
  config.set("partial_rotary_factor",
             Value::of(static_cast<double>(model.rotated) / static_cast<double>(model.head_dim)));
  config.set("sliding_window", model.sliding_window > 0 ? Value::of(model.sliding_window) : Value());
  std::int64_t original = model.context;
  if (model.rope_scaling.is_object()) {  // Phi-3 has this setting outside of the scaling as well
    original = model.rope_scaling.at("original_max_position_embeddings").as_int();
    Value scaling = Value::make_object({});
    for (const auto& [key, value] : model.rope_scaling.members())
      if (key != "original_max_position_embeddings") scaling.set(key, value);
    config.set("rope_scaling", std::move(scaling));
  }
  config.set("original_max_position_embeddings", Value::of(original));
  return config;
}

/// Files do not specify whether the weights of the selected experts are renormalised: llama.cpp defines it per
/// architecture (src/models/{qwen2moe,qwen3moe,olmoe}.cpp).
Value experts_config(const GgufModel& model, Value config) {
  const GgufExperts& e = *model.experts;
  config.set("num_experts_per_tok", Value::of(e.used));
  config.set("output_router_logits", Value::of(false));
  config.set("router_aux_loss_coef", Value::of(model.architecture == GgufArchitecture::llama   ? 0.02
                                               : model.architecture == GgufArchitecture::olmoe ? 0.01
                                                                                               : 0.001));
  if (model.architecture == GgufArchitecture::llama) {
    config.set("num_local_experts", Value::of(e.count));
    config.set("sliding_window", model.sliding_window > 0 ? Value::of(model.sliding_window) : Value());
    return config;
  }
  config.set("num_experts", Value::of(e.count));
  config.set("norm_topk_prob", Value::of(model.architecture == GgufArchitecture::qwen3moe));
  if (model.architecture == GgufArchitecture::olmoe) {
    config.set("attention_bias", Value::of(false));
    config.set("clip_qkv", Value());
    return config;
  }
  config.set("decoder_sparse_step", Value::of(1));
  config.set("mlp_only_layers", Value::make_array({}));
  config.set("moe_intermediate_size", Value::of(e.intermediate));
  config.set("sliding_window", Value());
  config.set("use_sliding_window", Value::of(false));
  if (e.shared_intermediate > 0) config.set("shared_expert_intermediate_size", Value::of(e.shared_intermediate));
  return config;
}

Value llama_config(const GgufModel& model) {
  Value config = Value::make_object({
      {"attention_dropout", Value::of(0.0)},
      {"head_dim", Value::of(model.head_dim)},
      {"hidden_act", Value::of("silu")},
      {"hidden_size", Value::of(model.hidden)},
      {"initializer_range", Value::of(0.02)},
      {"intermediate_size", Value::of(model.intermediate)},
      {"max_position_embeddings", Value::of(model.context)},
      {"num_attention_heads", Value::of(model.heads)},
      {"num_hidden_layers", Value::of(model.layers)},
      {"num_key_value_heads", Value::of(model.kv_heads)},
      {"rms_norm_eps", Value::of(model.norm_eps)},
      {"rope_scaling", model.rope_scaling},
      {"rope_theta", Value::of(model.rope_theta)},
  });
  if (model.gemma()) return gemma_config(model, std::move(config));
  if (model.architecture == GgufArchitecture::phi3) return phi3_config(model, std::move(config));
  if (model.experts) return experts_config(model, std::move(config));
  const bool qwen = model.architecture == GgufArchitecture::qwen2 || model.architecture == GgufArchitecture::qwen3;
  if (model.architecture != GgufArchitecture::qwen2 && model.sliding_window == 0)
    config.set("attention_bias", Value::of(model.attention_bias));
  if (!qwen && model.sliding_window == 0) config.set("mlp_bias", Value::of(model.mlp_bias));
  if (model.sliding_window > 0) config.set("sliding_window", Value::of(model.sliding_window));
  if (qwen) {
    config.set("max_window_layers", Value::of(model.layers));
    config.set("sliding_window", Value());
    config.set("use_sliding_window", Value::of(false));
  }
  return config;
}

struct Names {
  const char *model_type, *class_name;
};

Names names_of(const GgufModel& model) {
  switch (model.architecture) {
    case GgufArchitecture::gpt2:
      return {"gpt2", "GPT2LMHeadModel"};
    case GgufArchitecture::qwen2:
      return {"qwen2", "Qwen2ForCausalLM"};
    case GgufArchitecture::qwen3:
      return {"qwen3", "Qwen3ForCausalLM"};
    case GgufArchitecture::qwen2moe:
      return {"qwen2_moe", "Qwen2MoeForCausalLM"};
    case GgufArchitecture::qwen3moe:
      return {"qwen3_moe", "Qwen3MoeForCausalLM"};
    case GgufArchitecture::olmoe:
      return {"olmoe", "OlmoeForCausalLM"};
    case GgufArchitecture::gemma:
      return {"gemma", "GemmaForCausalLM"};
    case GgufArchitecture::gemma2:
      return {"gemma2", "Gemma2ForCausalLM"};
    case GgufArchitecture::gemma3:
      return {"gemma3_text", "Gemma3ForCausalLM"};
    case GgufArchitecture::phi3:
      return {"phi3", "Phi3ForCausalLM"};
    case GgufArchitecture::llama:
      break;
  }
  if (model.experts) return {"mixtral", "MixtralForCausalLM"};
  if (model.sliding_window > 0) return {"mistral", "MistralForCausalLM"};
  return {"llama", "LlamaForCausalLM"};
}

}  // namespace

Value hf_config(const GgufModel& model, const std::string& dtype) {
  const Names names = names_of(model);
  const Value settings = model.architecture == GgufArchitecture::gpt2 ? gpt2_config(model) : llama_config(model);
  std::vector<Value::Member> members = settings.members();
  members.insert(members.end(), {
                                    {"architectures", Value::make_array({Value::of(names.class_name)})},
                                    {"bos_token_id", id_or_null(model.bos)},
                                    {"eos_token_id", id_or_null(model.eos)},
                                    {"model_type", Value::of(names.model_type)},
                                    {"pad_token_id", id_or_null(model.pad)},
                                    {"tie_word_embeddings", Value::of(model.tied)},
                                    {"torch_dtype", Value::of(dtype)},
                                    {"use_cache", Value::of(true)},
                                    {"vocab_size", Value::of(model.vocab)},
                                });
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return Value::make_object(std::move(members));
}

Value hf_generation_config(const GgufModel& model) {
  Value config = Value::make_object({{"_from_model_config", Value::of(true)}});
  if (model.bos) config.set("bos_token_id", Value::of(*model.bos));
  std::vector<std::int64_t> ends;  // a chat model also stops at the end of a turn or a message
  for (const auto& id : {model.eos, model.eot, model.eom})
    if (id && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  if (ends.size() == 1) config.set("eos_token_id", Value::of(ends[0]));
  if (ends.size() > 1) {
    std::vector<Value> list;
    for (std::int64_t id : ends) list.push_back(Value::of(id));
    config.set("eos_token_id", Value::make_array(std::move(list)));
  }
  if (model.pad) config.set("pad_token_id", Value::of(*model.pad));
  return config;
}

}  // namespace tessera::format
