#include <tessera/plan/presets.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/plan/recorded.h>

#include <algorithm>

namespace tessera::plan {
namespace {

/// Sizes as the models' own config.json files on huggingface.co say. heads x head: given where hidden / heads is
/// something else. A dense model has no experts.
struct Preset {
  const char *name, *type;
  std::int64_t layers, hidden, heads, key_heads, head, inner, vocabulary, positions;
  bool tied = false;
  std::int64_t experts = 0, top_k = 0, expert_inner = 0, shared = 0, dense_layers = 0;
};

constexpr Preset presets[] = {
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

Value config_of(const Preset& p) {
  std::vector<Value::Member> members = {{"model_type", Value::of(p.type)}};
  const auto put = [&](const char* key, std::int64_t n) {
    if (n > 0) members.emplace_back(key, Value::of(n));
  };
  const std::string type = p.type;
  if (type == "gpt2") {
    put("n_layer", p.layers), put("n_embd", p.hidden), put("n_head", p.heads), put("n_positions", p.positions);
    put("n_inner", p.inner);
    // The large ones were trained without dropout, which is what a plan is asked about.
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

std::string plain(std::string name) {
  name = to_lower(name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

Value preset_config(const std::string& name) {
  for (const Preset& preset : presets)
    if (plain(name) == preset.name) return config_of(preset);
  const std::vector<std::string> names = preset_names();
  // gpt-3 is the beginning of gpt3-175b, from which it is far as words go
  const auto letters = [](std::string text) {
    text = plain(std::move(text));
    std::erase(text, '-');
    return text;
  };
  const auto longer = std::find_if(names.begin(), names.end(), [&](const std::string& known) {
    return !letters(name).empty() && letters(known).starts_with(letters(name));
  });
  const auto near = longer != names.end() ? std::optional(*longer) : nearest(plain(name), names);
  throw InputError(concat("model ", name, ": neither a file, nor a folder with a config.json, nor a known model; ",
                          near ? concat("did you mean ", *near, "? ") : "", "known: ", join(names)));
}

Model find_model(const std::string& text) {
  const bool folder = is_directory(text);
  if (folder || path_exists(text)) {
    const Value config = read_json(folder ? path_join(text, "config.json") : text);
    if (is_recorded(config)) return model_of_recorded(read_recorded(config), text);
    Model model = read_model(config);
    model.name = text;
    return model;
  }
  Model model = read_model(preset_config(text));
  model.name = plain(text);
  return model;
}

Model model_of_numbers(const ModelNumbers& n) {
  if (n.layers < 1 || n.hidden < 1)
    throw InputError("a model by numbers needs --layers and --hidden; the rest follows, or --model names a known one");
  Preset p{};
  p.name = "";
  p.type = n.gpt2 ? "gpt2" : n.experts > 0 ? "mixtral" : "llama";
  p.layers = n.layers;
  p.hidden = n.hidden;
  p.heads = n.heads > 0 ? n.heads : std::max<std::int64_t>(1, n.hidden / 128);
  p.key_heads = n.gpt2 ? 0 : n.key_heads > 0 ? n.key_heads : p.heads;
  // Llama's rule (Touvron et al. 2023): 8 / 3 of the width, up to a multiple of 256; GPT-2: four times.
  p.inner = n.expert_inner > 0 ? n.expert_inner : n.inner;
  if (p.inner == 0 && !n.gpt2) p.inner = (n.hidden * 8 / 3 + 255) / 256 * 256;
  p.vocabulary = n.vocabulary > 0 ? n.vocabulary : n.gpt2 ? 50257 : 32000;
  p.positions = n.positions > 0 ? n.positions : 131072;
  p.tied = n.gpt2;
  p.experts = n.experts;
  p.top_k = n.experts > 0 ? std::max<std::int64_t>(1, n.top_k > 0 ? n.top_k : 2) : 0;
  Model model = read_model(config_of(p));
  model.name = concat(format_count(parameter_count(model)), " ", p.type);
  return model;
}

}  // namespace tessera::plan
