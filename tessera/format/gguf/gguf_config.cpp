// config.json and generation_config.json as transformers writes them (v4 spelling, which v5 reads).

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
    case GgufArchitecture::llama:
      break;
  }
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
  std::vector<std::int64_t> ends;  // a chat model also stops where a turn or a message ends
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
