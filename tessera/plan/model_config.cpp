#include <tessera/plan/model_config.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/prediction_depths.h>
#include <tessera/config/model/config_value.h>
#include <tessera/config/model/vision_config.h>

#include <algorithm>

namespace tessera::plan {
using config::flag, config::given, config::positive, config::positive_or, config::probability, config::sparse_layers;
namespace {

void read_gpt2(const Value& json, Model& m) {
  m.family = Family::gpt2;
  m.layers = positive(json, "n_layer");
  m.hidden = positive(json, "n_embd");
  m.heads = m.key_heads = positive(json, "n_head");
  check_divides(json, "n_embd", m.hidden, "n_head", m.heads);
  m.head_size = m.hidden / m.heads;
  m.positions = positive(json, !json.find("n_positions") && json.find("n_ctx") ? "n_ctx" : "n_positions");
  m.vocabulary = positive(json, "vocab_size");
  m.inner = positive_or(json, "n_inner", 4 * m.hidden);
  m.gated = false;
  m.tied = flag(json, "tie_word_embeddings", true);
  m.query_bias = m.output_bias = m.mlp_bias = true;
  const Value* activation = given(json, "activation_function");
  m.erf_gelu = activation && activation->as_string() == "gelu";
  m.dropout = probability(json, "resid_pdrop", 0.1);
}

void read_bert(const Value& json, Model& m) {
  m.family = Family::bert;
  m.layers = positive(json, "num_hidden_layers");
  m.hidden = positive(json, "hidden_size");
  m.heads = m.key_heads = positive(json, "num_attention_heads");
  check_divides(json, "hidden_size", m.hidden, "num_attention_heads", m.heads);
  m.head_size = m.hidden / m.heads;
  m.positions = positive(json, "max_position_embeddings");
  m.vocabulary = positive(json, "vocab_size");
  m.inner = positive_or(json, "intermediate_size", 4 * m.hidden);
  m.segments = positive_or(json, "type_vocab_size", 2);
  m.gated = m.causal = false;
  m.tied = flag(json, "tie_word_embeddings", true);
  m.query_bias = m.output_bias = m.mlp_bias = true;
  const Value* activation = given(json, "hidden_act");
  m.erf_gelu = !activation || activation->as_string().starts_with("gelu_python") || activation->as_string() == "gelu";
  m.dropout = probability(json, "hidden_dropout_prob", 0.1);
  const Value* classes = given(json, "architectures");
  const bool classifies =
      classes && !classes->items().empty() && classes->items().front().as_string() == "BertForSequenceClassification";
  if (!classifies) return;
  const Value* names = given(json, "id2label");
  m.labels = names ? static_cast<std::int64_t>(names->members().size()) : positive_or(json, "num_labels", 2);
}

/// Which layers have experts: every decoder_sparse_step-th but those of mlp_only_layers; DeepSeek: from
/// first_k_dense_replace on.
void read_sparse(const Value& json, Model& m) {
  m.sparse.assign(static_cast<std::size_t>(m.layers), true);
  if (m.type == "deepseek_v3") {
    const Value* dense = given(json, "first_k_dense_replace");
    const std::int64_t first = std::clamp<std::int64_t>(dense ? dense->as_int() : 3, 0, m.layers);
    std::fill(m.sparse.begin(), m.sparse.begin() + first, false);
  }
  if (m.type != "qwen2_moe" && m.type != "qwen3_moe") return;
  m.sparse = sparse_layers(json, m.layers);
}

void read_experts(const Value& json, Model& m) {
  Experts e;
  const auto or_else = [&](const char* key, std::int64_t otherwise) { return positive_or(json, key, otherwise); };
  if (m.type == "deepseek_v3") {
    e.count = or_else("n_routed_experts", 256);
    e.top_k = or_else("num_experts_per_tok", 8);
    e.inner = or_else("moe_intermediate_size", 2048);
    e.shared_inner = e.inner * or_else("n_shared_experts", 1);
    e.selection_bias = true;
  } else if (m.type == "mixtral") {
    e.count = or_else("num_local_experts", 8);
    e.top_k = or_else("num_experts_per_tok", 2);
    e.inner = m.inner;
  } else {
    const bool qwen2 = m.type == "qwen2_moe", qwen3 = m.type == "qwen3_moe";
    e.count = or_else(given(json, "num_experts") ? "num_experts" : "num_local_experts", qwen3 ? 128 : qwen2 ? 60 : 64);
    e.top_k = or_else("num_experts_per_tok", qwen2 ? 4 : 8);
    e.inner = qwen2 || qwen3 ? or_else("moe_intermediate_size", qwen2 ? 1408 : 768) : m.inner;
    if (qwen2) e.shared_inner = or_else("shared_expert_intermediate_size", 5632);
    e.shared_gate = qwen2;
  }
  if (e.top_k > e.count)
    throw InputError(concat(json.where().str(), ": a token sees num_experts_per_tok ", e.top_k, " of ", e.count,
                            " experts; it may be 1 to ", e.count));
  m.experts = e;
  read_sparse(json, m);
}

/// As transformers reads them: Mistral, Mixtral and Qwen3-MoE have one window for all layers, Qwen2 and Qwen3 from
/// max_window_layers on or as layer_types says, Qwen2-MoE in every second of the first ones.
void read_windows(const Value& json, Model& m) {
  const std::string& t = m.type;
  const bool qwen = t == "qwen2" || t == "qwen3" || t == "qwen2_moe";
  if (t == "llama" || t == "olmoe" || t == "deepseek_v3" || !given(json, "sliding_window")) return;
  if ((qwen || t == "qwen3_moe") && !flag(json, "use_sliding_window", false)) return;
  const std::int64_t window = positive(json, "sliding_window");
  m.windows.assign(static_cast<std::size_t>(m.layers), 0);
  const Value *types = given(json, "layer_types"), *first = given(json, "max_window_layers");
  for (std::int64_t i = 0; i < m.layers; ++i) {
    bool has = true;
    if (qwen && types) {
      if (static_cast<std::int64_t>(types->items().size()) != m.layers)
        throw InputError(concat(types->where().str(), ": layer_types has ", types->items().size(), " entries for ",
                                m.layers, " layers"));
      has = types->items()[static_cast<std::size_t>(i)].as_string() == "sliding_attention";
    } else if (t == "qwen2_moe") {
      has = i % 2 == 0 && i < (first ? first->as_int() : 28);
    } else if (qwen) {
      has = i >= (first ? first->as_int() : 28);
    }
    if (has) m.windows[static_cast<std::size_t>(i)] = window;
  }
}

void read_llama(const Value& json, Model& m) {
  const bool mistral = m.type == "mistral" || m.type == "mixtral", qwen2 = m.type == "qwen2" || m.type == "qwen2_moe";
  const bool latent = m.type == "deepseek_v3";
  // A latent head has sizes of its own; that of hidden / heads is not looked at.
  read_sizes(json, m,
             {.key_heads = mistral                 ? 8
                           : m.type == "qwen3_moe" ? 4
                                                   : 0,
              .head_size = m.type == "qwen3" || latent ? 128 : 0});
  const bool bias = !mistral && !qwen2 && flag(json, "attention_bias", false);
  m.query_bias = m.type == "qwen2" || (m.type == "qwen2_moe" && flag(json, "qkv_bias", true)) || bias;
  m.output_bias = bias;
  m.mlp_bias = m.type == "llama" && flag(json, "mlp_bias", false);
  m.wide_head_norm = m.type == "olmoe";
  m.head_norm = m.wide_head_norm || m.type == "qwen3" || m.type == "qwen3_moe";
  if (m.type == "mixtral") m.names = layout::mixtral_names;
  if (latent) {
    m.latent = read_latent(json);
    m.head_size = m.latent->widest();
  }
  if (latent || m.type == "mixtral" || m.type == "qwen2_moe" || m.type == "qwen3_moe" || m.type == "olmoe")
    read_experts(json, m);
  read_windows(json, m);
}

/// The decoder's sizes, and a tower before it.
void read_llava(const Value& json, Model& m) {
  const config::LlavaParts parts = config::parse_llava_parts(json);
  m = read_model(parts.text);
  m.vision = {.layers = parts.vision.layers,
              .hidden = parts.vision.hidden,
              .heads = parts.vision.heads,
              .inner = parts.vision.intermediate,
              .blocks = parts.feature_blocks,
              .side = parts.vision.image_size,
              .patch = parts.vision.patch_size,
              .quick_gelu = parts.vision.quick_gelu,
              .tokens = parts.tokens(),
              .projections = parts.projections,
              .projector_bias = parts.projector_bias};
}

struct FamilyRow {
  const char *type, *architecture;
  void (*read)(const Value&, Model&);
};
constexpr FamilyRow families[] = {{"gpt2", "GPT2LMHeadModel", read_gpt2},
                                  {"llama", "LlamaForCausalLM", read_llama},
                                  {"mistral", "MistralForCausalLM", read_llama},
                                  {"qwen2", "Qwen2ForCausalLM", read_llama},
                                  {"qwen3", "Qwen3ForCausalLM", read_llama},
                                  {"mixtral", "MixtralForCausalLM", read_llama},
                                  {"qwen2_moe", "Qwen2MoeForCausalLM", read_llama},
                                  {"qwen3_moe", "Qwen3MoeForCausalLM", read_llama},
                                  {"olmoe", "OlmoeForCausalLM", read_llama},
                                  {"deepseek_v3", "DeepseekV3ForCausalLM", read_llama},
                                  {"gemma", "GemmaForCausalLM", read_gemma},
                                  {"gemma2", "Gemma2ForCausalLM", read_gemma},
                                  {"gemma3_text", "Gemma3ForCausalLM", read_gemma},
                                  {"phi3", "Phi3ForCausalLM", read_phi3},
                                  {"olmo", "OlmoForCausalLM", read_olmo},
                                  {"olmo2", "Olmo2ForCausalLM", read_olmo},
                                  {"olmo3", "Olmo3ForCausalLM", read_olmo},
                                  {"granite", "GraniteForCausalLM", read_granite},
                                  {"smollm3", "SmolLM3ForCausalLM", read_smollm3},
                                  {"arcee", "ArceeForCausalLM", read_squared},
                                  {"nemotron", "NemotronForCausalLM", read_squared},
                                  {"stablelm", "StableLmForCausalLM", read_stablelm},
                                  {"starcoder2", "Starcoder2ForCausalLM", read_starcoder2},
                                  {"cohere", "CohereForCausalLM", read_cohere},
                                  {"cohere2", "Cohere2ForCausalLM", read_cohere},
                                  {"gpt_neox", "GPTNeoXForCausalLM", read_gpt_neox},
                                  {"phi", "PhiForCausalLM", read_phi},
                                  {"opt", "OPTForCausalLM", read_opt},
                                  {"megatron_gpt", "MegatronGptForCausalLM", read_megatron_gpt},
                                  {"llava", "LlavaForConditionalGeneration", read_llava},
                                  {"bert", "BertForMaskedLM", read_bert}};

const FamilyRow& family_of(const Value& json) {
  const Value *type = given(json, "model_type"), *classes = given(json, "architectures");
  if (!type && (!classes || classes->items().empty()))
    throw InputError(concat(json.where().str(), ": neither model_type nor architectures says which model this is"));
  const Value& said = type ? *type : classes->items().front();
  std::vector<std::string> known;
  for (const FamilyRow& row : families) {
    if (said.as_string() == (type ? row.type : row.architecture)) return row;
    known.emplace_back(type ? row.type : row.architecture);
  }
  throw InputError(concat(said.where().str(), ": model \"", said.as_string(), "\" is not known; known: ", join(known)));
}

}  // namespace

Latent read_latent(const Value& json) {
  Latent l;
  l.query_rank = given(json, "q_lora_rank") ? positive(json, "q_lora_rank") : 0;
  l.key_rank = positive_or(json, "kv_lora_rank", 512);
  l.plain = positive_or(json, "qk_nope_head_dim", 128);
  l.rotated = positive_or(json, "qk_rope_head_dim", 64);
  l.value = positive_or(json, "v_head_dim", 128);
  return l;
}

Model read_model(const Value& config) {
  if (!config.is_object()) throw InputError(concat(config.where().str(), ": a model's configuration is an object"));
  const FamilyRow& row = family_of(config);
  Model model;
  model.type = row.type;
  row.read(config, model);
  model.name = row.type;
  constexpr std::int64_t most_layers = 65536, most_experts = 1 << 20;
  if (model.layers > most_layers)
    throw InputError(
        concat(config.where().str(), ": ", model.layers, " layers; at most ", most_layers, " can be planned for"));
  if (model.experts && model.layers * model.experts->count > most_experts)
    throw InputError(concat(config.where().str(), ": ", model.layers, " layers of ", model.experts->count,
                            " experts; at most ", most_experts, " in all can be planned for"));
  model.depths = config::prediction_depths(config);
  const auto all = static_cast<std::size_t>(model.layers + model.depths);
  if (!model.windows.empty()) model.windows.resize(all, model.windows.back());
  if (!model.sparse.empty()) model.sparse.resize(all, model.sparse.back());
  if (model.linear) model.linear->layers.resize(all, model.linear->layers.back());
  return model;
}

}  // namespace tessera::plan
