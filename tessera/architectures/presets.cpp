#include <tessera/architectures/presets.h>

#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::architectures {
namespace {

/// Members shared by the small models: grouped queries, a tied head.
constexpr const char* small_decoder = R"({
  "attention_dropout": 0.0, "bos_token_id": 8191, "eos_token_id": 8191, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 256, "initializer_range": 0.02, "intermediate_size": 688, "max_position_embeddings": 1024,
  "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
  "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "float32",
  "use_cache": true, "vocab_size": 8192})";

/// GPT-2's original size, and its differences from the small preset.
constexpr const char* gpt2_124m = R"({
  "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "n_embd": 768, "n_head": 12,
  "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257})";

std::string name_of_small(const Architecture& a) {
  std::string name = a.model_type;
  std::replace(name.begin(), name.end(), '_', '-');
  return name + "-tiny";
}

/// Later texts override earlier ones.
Value merged(const Architecture& a, std::initializer_list<const char*> texts) {
  std::map<std::string, Value> members = {{"architectures", Value::make_array({Value::of(a.architecture)})},
                                          {"model_type", Value::of(a.model_type)}};
  for (const char* text : texts)
    for (auto& [key, value] : parse_json(text, name_of_small(a)).members())
      members.insert_or_assign(key, std::move(value));
  return Value::make_object({members.begin(), members.end()});
}

bool is_whole(const char* preset) {
  const Value members = parse_json(preset, "preset");
  return members.find("vocab_size") != nullptr;
}

/// Sizes from the models' own config.json files on huggingface.co. heads x head: only set if it differs from hidden /
/// heads. A dense model has no experts.
constexpr Sizes published[] = {
    // Radford et al. 2019; Brown et al. 2020, table 2.1
    {"gpt2", "gpt2", 12, 768, 12, 0, 0, 0, 50257, 1024, true},
    {"gpt2-medium", "gpt2", 24, 1024, 16, 0, 0, 0, 50257, 1024, true},
    {"gpt2-large", "gpt2", 36, 1280, 20, 0, 0, 0, 50257, 1024, true},
    {"gpt2-xl", "gpt2", 48, 1600, 25, 0, 0, 0, 50257, 1024, true},
    {"gpt3-175b", "gpt2", 96, 12288, 96, 0, 0, 0, 50257, 2048, true},
    // Devlin et al. 2019
    {"bert-base", "bert", 12, 768, 12, 0, 0, 3072, 30522, 512, true},
    {"bert-large", "bert", 24, 1024, 16, 0, 0, 4096, 30522, 512, true},
    // Touvron et al. 2023 (Llama 2), Grattafiori et al. 2024 (Llama 3, table 3)
    {"llama-2-7b", "llama", 32, 4096, 32, 32, 0, 11008, 32000, 4096},
    {"llama-2-13b", "llama", 40, 5120, 40, 40, 0, 13824, 32000, 4096},
    {"llama-2-70b", "llama", 80, 8192, 64, 8, 0, 28672, 32000, 4096},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, true},
    {"llama-3.2-3b", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, true},
    {"llama-3-8b", "llama", 32, 4096, 32, 8, 0, 14336, 128256, 8192},
    {"llama-3-70b", "llama", 80, 8192, 64, 8, 0, 28672, 128256, 8192},
    {"llama-3-405b", "llama", 126, 16384, 128, 8, 0, 53248, 128256, 131072},
    // Jiang et al. 2023, 2024
    {"mistral-7b", "mistral", 32, 4096, 32, 8, 0, 14336, 32000, 32768},
    {"mixtral-8x7b", "mixtral", 32, 4096, 32, 8, 0, 14336, 32000, 32768, false, 8, 2},
    {"mixtral-8x22b", "mixtral", 56, 6144, 48, 8, 0, 16384, 32768, 65536, false, 8, 2},
    // Qwen Team 2024, 2025
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 0, 4864, 151936, 32768, true},
    {"qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 0, 18944, 152064, 32768},
    {"qwen2.5-32b", "qwen2", 64, 5120, 40, 8, 0, 27648, 152064, 32768},
    {"qwen2.5-72b", "qwen2", 80, 8192, 64, 8, 0, 29568, 152064, 32768},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960},
    {"qwen3-32b", "qwen3", 64, 5120, 64, 8, 128, 25600, 151936, 40960},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 32, 4, 128, 6144, 151936, 40960, false, 128, 8, 768},
    {"qwen3-235b-a22b", "qwen3_moe", 94, 4096, 64, 4, 128, 12288, 151936, 40960, false, 128, 8, 1536},
    // Muennighoff et al. 2024; DeepSeek-AI 2024
    {"olmoe-1b-7b", "olmoe", 16, 2048, 16, 16, 0, 1024, 50304, 4096, false, 64, 8},
    {"deepseek-v3", "deepseek_v3", 61, 7168, 128, 128, 0, 18432, 129280, 163840, false, 256, 8, 2048, 1, 3},
};

}  // namespace

Value config_of(const Sizes& p) {
  std::vector<Value::Member> members = {{"model_type", Value::of(p.type)}};
  const auto put = [&](const char* key, std::int64_t n) {
    if (n > 0) members.emplace_back(key, Value::of(n));
  };
  const std::string type = p.type;
  if (type == "gpt2") {
    put("n_layer", p.layers), put("n_embd", p.hidden), put("n_head", p.heads), put("n_positions", p.positions);
    put("n_inner", p.inner);
    // The large ones were trained without dropout, which plans assume.
    for (const char* key : {"resid_pdrop", "attn_pdrop", "embd_pdrop"}) members.emplace_back(key, Value::of(0.0));
  } else {
    put("num_hidden_layers", p.layers), put("hidden_size", p.hidden), put("num_attention_heads", p.heads);
    put("num_key_value_heads", p.key_heads), put("head_dim", p.head), put("intermediate_size", p.inner);
    put("max_position_embeddings", p.positions);
  }
  put("vocab_size", p.vocabulary);
  members.emplace_back("tie_word_embeddings", Value::of(p.tied));
  put("num_experts_per_tok", p.top_k), put("moe_intermediate_size", p.expert_inner);
  if (type == "deepseek_v3") {
    put("n_routed_experts", p.experts), put("n_shared_experts", p.shared);
    put("first_k_dense_replace", p.dense_layers), put("q_lora_rank", 1536), put("kv_lora_rank", 512);
    put("qk_nope_head_dim", 128), put("qk_rope_head_dim", 64), put("v_head_dim", 128);
  } else {
    put(type == "mixtral" ? "num_local_experts" : "num_experts", p.experts);
  }
  return Value::make_object(std::move(members));
}

std::vector<std::string> published_names() {
  std::vector<std::string> names;
  for (const Sizes& sizes : published) names.emplace_back(sizes.name);
  return names;
}

std::optional<Value> published_config(const std::string& name) {
  std::string plain = to_lower(name);
  std::replace(plain.begin(), plain.end(), '_', '-');
  for (const Sizes& sizes : published)
    if (plain == sizes.name) return config_of(sizes);
  return std::nullopt;
}

std::string model_preset_names() {
  std::vector<std::string> names = {"gpt2"};
  for (const Architecture* a : all_architectures())
    if (a->preset != nullptr) names.push_back(name_of_small(*a));
  return join(names);
}

std::optional<Value> model_preset(const std::string& name) {
  for (const Architecture* a : all_architectures()) {
    if (a->preset == nullptr) continue;
    if (name == "gpt2" && name == a->model_type) return merged(*a, {a->preset, gpt2_124m});
    if (name != name_of_small(*a)) continue;
    return is_whole(a->preset) ? merged(*a, {a->preset}) : merged(*a, {small_decoder, a->preset});
  }
  return std::nullopt;
}

Value known_preset(const std::string& name) {
  if (auto known = model_preset(name)) return *std::move(known);
  throw InputError(
      concat("config_name \"", name, "\" is neither a file nor a preset; presets: ", model_preset_names()));
}

}  // namespace tessera::architectures
