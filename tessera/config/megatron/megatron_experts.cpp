// --num-experts, --multi-latent-attention and related arguments -> model families and load balancing. Meanings and
// defaults: megatron/core/transformer/transformer_config.py, megatron/core/transformer/moe/moe_utils.py.
#include <tessera/config/megatron/megatron_reading.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <span>

namespace tessera::config {
namespace {

/// Megatron's --moe-layer-freq: N (every N-th layer, starting with the first), or a Python expression of lists:
/// "([0]*1+[1]*15)". 1: a layer with experts.
class LayerPattern {
 public:
  static std::vector<bool> read(const std::string& text, std::int64_t layers) {
    std::vector<bool> sparse;
    if (const auto each = parse_int(text)) {
      if (*each < 1) throw InputError("a number must be at least 1");
      for (std::int64_t i = 0; i < layers; ++i) sparse.push_back(i % *each == 0);
      return sparse;
    }
    LayerPattern pattern(text);
    sparse = pattern.sum();
    if (pattern.at_ != text.size()) throw InputError(concat("column ", pattern.at_ + 1, " is invalid"));
    if (static_cast<std::int64_t>(sparse.size()) != layers)
      throw InputError(concat("it specifies ", sparse.size(), " layers, but the model has ", layers));
    return sparse;
  }

 private:
  explicit LayerPattern(const std::string& text) : text_(text) {}

  bool take(char c) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) throw InputError(concat("column ", at_ + 1, ": expected '", std::string(1, c), "'"));
  }
  std::int64_t number() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const auto value = parse_int(text_.substr(begin, at_ - begin));
    if (!value || *value > most_layers) throw InputError(concat("column ", begin + 1, ": expected a number"));
    take(' ');
    return *value;
  }

  std::vector<bool> sum() {
    std::vector<bool> all = product();
    while (take('+')) {
      const std::vector<bool> more = product();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  std::vector<bool> product() {
    std::vector<bool> all = list();
    while (take('*')) {
      const std::int64_t times = number();
      if (static_cast<std::int64_t>(all.size()) * times > most_layers) throw InputError("it has too many layers");
      const std::vector<bool> once = all;
      all.clear();
      for (std::int64_t i = 0; i < times; ++i) all.insert(all.end(), once.begin(), once.end());
    }
    return all;
  }
  std::vector<bool> list() {
    if (take('(')) {
      if (++depth_ > 16) throw InputError("it is nested too deeply");
      std::vector<bool> inner = sum();
      expect(')');
      return inner;
    }
    std::vector<bool> all;
    expect('[');
    do {
      all.push_back(number() != 0);
    } while (take(','));
    expect(']');
    return all;
  }

  static constexpr std::int64_t most_layers = 65536;
  const std::string& text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

/// Selects the matching family, or the reason why none matches.
class FamilyChoice {
 public:
  explicit FamilyChoice(MegatronArguments& arguments) : a_(arguments) {}

  MegatronFamily choose() {
    if (a_.has("multi_latent_attention")) return latent();
    for (const char* name : {"num_experts", "qk_layernorm", "add_qkv_bias"})
      if (a_.has(name) && !a_.has("disable_bias_linear"))
        return no_family(name, "with biases everywhere, which only a plain Llama has");
    if (a_.has("num_experts")) return experts();
    if (a_.has("qk_layernorm") && a_.has("add_qkv_bias")) return no_family("add_qkv_bias", "with --qk-layernorm");
    return {a_.has("qk_layernorm") ? "qwen3-tiny" : a_.has("add_qkv_bias") ? "qwen2-tiny" : "llama-tiny"};
  }

 private:
  static MegatronFamily no_family(const char* name, const std::string& why) { return {nullptr, name, why}; }
  bool sigmoid() {
    return a_.word("moe_router_score_function", {"softmax", "sigmoid"}).value_or("softmax") == "sigmoid";
  }

  /// Does not report invalid values: the code that uses them does.
  bool has_dense_layers() {
    const auto layers = a_.whole("num_layers", 1);
    const auto pattern = a_.text("moe_layer_freq");
    if (!layers || !pattern) return false;
    try {
      const std::vector<bool> sparse = LayerPattern::read(*pattern, *layers);
      return std::find(sparse.begin(), sparse.end(), false) != sparse.end();
    } catch (const InputError&) {
      return false;
    }
  }

  static std::string flag_of(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return "--" + name;
  }

  MegatronFamily latent() {
    constexpr const char* name = "multi_latent_attention";
    // DeepSeek-V3 is the family with latent attention; if one of these parts is missing, the model is Megatron's own.
    for (const char* part :
         {"disable_bias_linear", "num_experts", "qk_layernorm", "moe_shared_expert_intermediate_size"})
      if (!a_.has(part)) return no_family(name, concat("without ", flag_of(part)));
    if (!sigmoid()) return no_family(name, "without --moe-router-score-function sigmoid");
    if (a_.has("moe_shared_expert_gate")) return no_family("moe_shared_expert_gate", concat("with ", flag_of(name)));
    if (megatron_sinkhorn(a_)) return no_family("moe_router_load_balancing_type", "sinkhorn");
    return {"deepseek-v3-tiny"};
  }

  MegatronFamily experts() {
    if (megatron_sinkhorn(a_)) return no_family("moe_router_load_balancing_type", "sinkhorn");
    if (sigmoid()) return no_family("moe_router_score_function", "sigmoid without --multi-latent-attention");
    for (const char* name : {"moe_router_num_groups", "moe_router_group_topk", "moe_router_topk_scaling_factor",
                             "moe_router_enable_expert_bias"})
      if (a_.has(name)) return no_family(name, "without --multi-latent-attention");
    const auto jitter = a_.real("moe_input_jitter_eps", 0);
    const bool jitters = jitter && *jitter > 0;
    constexpr const char* shared = "moe_shared_expert_intermediate_size";
    if (a_.has(shared)) {
      if (!a_.has("moe_shared_expert_gate")) return no_family(shared, "without --moe-shared-expert-gate");
      if (a_.has("qk_layernorm")) return no_family("qk_layernorm", "with --moe-shared-expert-intermediate-size");
      if (jitters) return no_family("moe_input_jitter_eps", "with --moe-shared-expert-intermediate-size");
      return {"qwen2-moe-tiny"};
    }
    if (a_.has("add_qkv_bias")) return no_family("add_qkv_bias", "with experts but no shared expert");
    if (a_.has("qk_layernorm")) {
      if (jitters) return no_family("moe_input_jitter_eps", "with --qk-layernorm");
      return {"qwen3-moe-tiny"};
    }
    if (a_.has("moe_router_pre_softmax")) return no_family("moe_router_pre_softmax", "without --qk-layernorm");
    if (has_dense_layers()) return no_family("moe_layer_freq", "that skips layers, without --qk-layernorm");
    return {"mixtral-tiny"};
  }

  MegatronArguments& a_;
};

/// Whether each layer has experts, from --moe-layer-freq; true for all layers after reporting a problem.
std::vector<bool> read_sparse_layers(MegatronArguments& a, std::int64_t layers) {
  const auto text = a.text("moe_layer_freq");
  try {
    if (text) return LayerPattern::read(*text, layers);
  } catch (const InputError& error) {
    a.problem("moe_layer_freq", concat(*text, ": ", error.what()), {"config_overrides"});
  }
  return std::vector<bool>(static_cast<std::size_t>(layers), true);
}

/// "[0,2]"; empty if all layers have experts.
std::string dense_layers(const std::vector<bool>& sparse) {
  std::vector<std::string> dense;
  for (std::size_t i = 0; i < sparse.size(); ++i)
    if (!sparse[i]) dense.push_back(concat(i));
  return dense.empty() ? std::string() : concat("[", join(dense), "]");
}

class FamilyMembers {
 public:
  FamilyMembers(MegatronArguments& arguments, std::string_view preset, MegatronMembers& members)
      : a_(arguments),
        members_(members),
        mixtral_(preset == "mixtral-tiny"),
        latent_(preset == "deepseek-v3-tiny"),
        qwen2_(preset == "qwen2-moe-tiny") {}

  void experts() {
    const auto experts = a_.whole("num_experts", 1), layers = a_.whole("num_layers", 1);
    const auto own = a_.whole("moe_ffn_hidden_size", 1);
    const std::int64_t top_k = a_.whole("moe_router_topk", 1).value_or(2);
    if (!experts || !layers) return;
    if (top_k > *experts)
      problem(a_.has("moe_router_topk") ? "moe_router_topk" : "num_experts",
              concat("a token would use ", top_k, " of ", *experts, experts == 1 ? " expert" : " experts"));
    const std::string dense = member("intermediate_size");
    const std::string width = own ? concat(*own) : dense;
    set(mixtral_ ? "num_local_experts" : latent_ ? "n_routed_experts" : "num_experts", *experts);
    set("num_experts_per_tok", top_k);
    set(mixtral_ ? "intermediate_size" : "moe_intermediate_size", width);
    if (!mixtral_) set("norm_topk_prob", latent_ ? top_k > 1 : !a_.has("moe_router_pre_softmax"));
    if (qwen2_) set("qkv_bias", a_.has("add_qkv_bias"));
    shared(width);
    which_layers(*layers);
    router(top_k);
  }

  void attention() {
    set("kv_lora_rank", a_.whole("kv_lora_rank", 1).value_or(32));
    if (const auto rank = a_.whole("q_lora_rank", 1)) set("q_lora_rank", *rank);
    set("qk_nope_head_dim", a_.whole("qk_head_dim", 1).value_or(128));
    set("qk_rope_head_dim", a_.whole("qk_pos_emb_head_dim", 1).value_or(64));
    set("v_head_dim", a_.whole("v_head_dim", 1).value_or(128));
    set("head_dim", member("qk_rope_head_dim"));  // as in transformers
    set("num_key_value_heads", member("num_attention_heads"));
    const double factor = a_.real("rotary_scaling_factor", 0).value_or(1);
    const double scale = a_.real("mscale", 0).value_or(1), all = a_.real("mscale_all_dim", 0).value_or(0);
    if (factor <= 1) return;  // not longer than the original length: YaRN changes nothing
    if (all == 0 && scale != 1)
      return problem("mscale", concat(format_real(scale), " needs --mscale-all-dim: without it the factor is 1"));
    set("rope_scaling", concat(R"({"type": "yarn", "factor": )", format_real(factor),
                               R"(, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, )",
                               R"("mscale": )", format_real(scale), R"(, "mscale_all_dim": )", format_real(all), "}"));
  }

 private:
  template <class T>
  void set(const char* key, const T& value) {
    set_member(members_, key, concat(value));
  }
  void set(const char* key, bool value) { set_member(members_, key, value ? "true" : "false"); }
  std::string member(std::string_view key) const {
    for (const auto& [name, value] : members_)
      if (name == key) return value;
    return "0";
  }
  void problem(const char* name, const std::string& what) { a_.problem(name, what, {"config_overrides"}); }

  /// Sets the size of the shared expert.
  void shared(const std::string& width) {
    const auto size = a_.whole("moe_shared_expert_intermediate_size", 1);
    if (!size) return;
    if (!latent_) return set("shared_expert_intermediate_size", *size);
    const std::int64_t each = parse_int(width).value_or(0);
    if (each < 1 || *size % each != 0)
      return problem("moe_shared_expert_intermediate_size",
                     concat(*size, " is not a multiple of --moe-ffn-hidden-size ", width, ", as DeepSeek-V3's is"));
    set("n_shared_experts", *size / each);
  }

  void which_layers(std::int64_t layers) {
    const std::vector<bool> sparse = read_sparse_layers(a_, layers);
    const auto first = std::find(sparse.begin(), sparse.end(), true);
    if (latent_) {
      if (std::find(first, sparse.end(), false) != sparse.end())
        return problem("moe_layer_freq", concat(*a_.text("moe_layer_freq"),
                                                ": DeepSeek-V3's dense layers come before its expert layers"));
      return set("first_k_dense_replace", first - sparse.begin());
    }
    if (const std::string dense = dense_layers(sparse); !dense.empty()) set("mlp_only_layers", dense);
  }

  void router(std::int64_t top_k) {
    if (const auto jitter = a_.real("moe_input_jitter_eps", 0); jitter && *jitter > 0) {
      if (mixtral_)
        set("router_jitter_noise", format_real(*jitter));
      else
        problem("moe_input_jitter_eps", "with --multi-latent-attention is not supported: remove it");
    }
    if (!latent_) return;
    const auto groups = a_.whole("moe_router_num_groups", 1), best = a_.whole("moe_router_group_topk", 1);
    const auto factor = a_.real("moe_router_topk_scaling_factor", 0);
    set("routed_scaling_factor", format_real(factor.value_or(1)));
    set("n_group", groups.value_or(1));
    set("topk_group", best.value_or(1));
    // A group's score is the sum of its moe_router_topk / moe_router_group_topk best experts, in DeepSeek-V3 two.
    if (groups.value_or(1) > 1 && top_k / best.value_or(1) != 2)
      problem("moe_router_num_groups",
              concat(*groups, " needs --moe-router-topk ", 2 * best.value_or(1), ", twice --moe-router-group-topk ",
                     best.value_or(1), ": DeepSeek-V3 scores groups by their two best experts"));
  }

  MegatronArguments& a_;
  MegatronMembers& members_;
  bool mixtral_, latent_, qwen2_;
};

constexpr const char* of_experts[] = {"moe_ffn_hidden_size",       "moe_layer_freq",
                                      "moe_router_topk",           "moe_router_pre_softmax",
                                      "moe_router_score_function", "moe_router_num_groups",
                                      "moe_router_group_topk",     "moe_router_topk_scaling_factor",
                                      "moe_input_jitter_eps",      "moe_shared_expert_intermediate_size",
                                      "moe_shared_expert_gate"};
constexpr const char* of_balance[] = {"moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff",
                                      "moe_router_enable_expert_bias", "moe_router_bias_update_rate"};
constexpr const char* of_latents[] = {"q_lora_rank", "kv_lora_rank",          "qk_head_dim", "qk_pos_emb_head_dim",
                                      "v_head_dim",  "rotary_scaling_factor", "mscale",      "mscale_all_dim"};

constexpr const char* of_linear[] = {"linear_attention_freq", "linear_conv_kernel_dim", "linear_key_head_dim",
                                     "linear_value_head_dim", "linear_num_key_heads",   "linear_num_value_heads"};

/// Notes that `names` have no effect without `asks`.
void note_without(MegatronArguments& a, const char* asks, std::span<const char* const> names, const std::string& why) {
  if (a.has(asks)) return;
  for (const char* name : names)
    if (a.has(name)) a.note(name, concat("has no effect: ", why));
}

}  // namespace

bool megatron_sinkhorn(MegatronArguments& a) {
  return a.has("num_experts") &&
         a.word("moe_router_load_balancing_type",
                {"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"}) == "sinkhorn";
}

MegatronFamily megatron_llama_family(MegatronArguments& arguments) { return FamilyChoice(arguments).choose(); }

void translate_megatron_gpt_experts(MegatronArguments& a, MegatronMembers& members) {
  const auto set = [&](const char* key, const auto& value) { set_member(members, key, concat(value)); };
  const auto experts = a.whole("num_experts", 1), layers = a.whole("num_layers", 1);
  if (!experts || !layers) return;
  const std::int64_t top_k = a.whole("moe_router_topk", 1).value_or(2);
  if (top_k > *experts)
    return a.problem(a.has("moe_router_topk") ? "moe_router_topk" : "num_experts",
                     concat("a token would use ", top_k, " of ", *experts, *experts == 1 ? " expert" : " experts"),
                     {"config_overrides"});
  set("num_experts", *experts);
  set("num_experts_per_tok", top_k);
  if (const auto width = a.whole("moe_ffn_hidden_size", 1)) set("moe_intermediate_size", *width);
  if (const auto width = a.whole("moe_shared_expert_intermediate_size", 1)) {
    set("shared_expert_intermediate_size", *width);
    set("shared_expert_gate", a.has("moe_shared_expert_gate") ? "true" : "false");
  }
  if (const std::string dense = dense_layers(read_sparse_layers(a, *layers)); !dense.empty())
    set("mlp_only_layers", dense);
  const bool sinkhorn = megatron_sinkhorn(a);
  const bool sigmoid = a.word("moe_router_score_function", {"softmax", "sigmoid"}) == "sigmoid";
  if (sinkhorn) set("router_balancing", "sinkhorn");
  set("router_scoring", sinkhorn                          ? (top_k == 1 ? "sigmoid" : "softmax")
                        : sigmoid                         ? "sigmoid"
                        : a.has("moe_router_pre_softmax") ? "softmax"
                                                          : "softmax_of_chosen");
  set("norm_topk_prob", sigmoid && !sinkhorn && top_k > 1 ? "true" : "false");
  if (const auto jitter = a.real("moe_input_jitter_eps", 0)) set("router_jitter_noise", format_real(*jitter));
  if (sinkhorn) return;
  set("router_selection_bias", a.has("moe_router_enable_expert_bias") ? "true" : "false");
  if (const auto factor = a.real("moe_router_topk_scaling_factor", 0))
    set("routed_scaling_factor", format_real(*factor));
  if (const auto groups = a.whole("moe_router_num_groups", 1)) set("n_group", *groups);
  if (const auto best = a.whole("moe_router_group_topk", 1)) set("topk_group", *best);
}

std::vector<bool> megatron_linear_layers(MegatronArguments& a, std::int64_t layers) {
  const auto text = a.text("linear_attention_freq");
  std::vector<bool> linear(static_cast<std::size_t>(std::min<std::int64_t>(layers, 65536)), true);
  try {
    if (!text) return linear;
    const auto each = parse_int(*text);
    if (!each) return LayerPattern::read(*text, layers);
    if (*each < 1) throw InputError("a number must be at least 1");
    for (std::size_t i = 0; i < linear.size(); ++i) linear[i] = (static_cast<std::int64_t>(i) + 1) % *each != 0;
  } catch (const InputError& error) {
    a.problem("linear_attention_freq", concat(*text, ": ", error.what()), {"config_overrides"});
  }
  return linear;
}

void translate_megatron_latents(MegatronArguments& a, MegatronMembers& members) {
  const auto norm = a.word("normalization", {"layernorm", "rmsnorm"}).value_or("layernorm");
  if (a.has("qk_layernorm") && (norm != "rmsnorm" || a.has("apply_layernorm_1p")))
    a.problem("qk_layernorm",
              "with --multi-latent-attention needs --normalization RMSNorm without --apply-layernorm-1p, the only "
              "norms of latents here",
              {"config_overrides"});
  FamilyMembers(a, "megatron-gpt-tiny", members).attention();
}

void translate_megatron_family(MegatronArguments& arguments, std::string_view preset, MegatronMembers& members) {
  FamilyMembers family(arguments, preset, members);
  if (arguments.has("multi_latent_attention")) family.attention();
  if (arguments.has("num_experts")) family.experts();
}

void translate_megatron_balance(MegatronArguments& a, bool model_given) {
  const std::string told = "the model's config.json determines it";
  note_without(a, "multi_latent_attention", of_latents, model_given ? told : "it is for --multi-latent-attention");
  note_without(a, "experimental_attention_variant", of_linear,
               model_given ? told : "it is for --experimental-attention-variant gated_delta_net");
  const std::string experts = "it is for mixtures of experts (--num-experts)";
  note_without(a, "num_experts", of_experts, model_given ? told : experts);
  if (!a.has("num_experts") && !model_given) return note_without(a, "num_experts", of_balance, experts);
  const auto type =
      a.word("moe_router_load_balancing_type", {"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"});
  const auto coefficient = a.real("moe_aux_loss_coeff", 0);
  if (type == "sinkhorn") {
    if (model_given) a.note("moe_router_load_balancing_type", "has no effect: the model's config.json determines it");
    if (coefficient && *coefficient > 0)
      a.problem("moe_aux_loss_coeff",
                "with --moe-router-load-balancing-type sinkhorn: Megatron supports no loss there");
  } else if (type == "none") {
    a.give("moe_router_load_balancing_type", "router_aux_loss_coef", "0");
  } else if (coefficient) {
    a.give("moe_aux_loss_coeff", "router_aux_loss_coef", format_real(*coefficient));
    const std::string word = type.value_or("aux_loss");
    if (*coefficient > 0)
      a.give(type ? "moe_router_load_balancing_type" : "moe_aux_loss_coeff", "router_aux_loss_form",
             word == "aux_loss"       ? "micro_batch"
             : word == "seq_aux_loss" ? "sequence"
                                      : "global_batch");
  }
  if (const auto factor = a.real("moe_z_loss_coeff", 0))
    a.give("moe_z_loss_coeff", "router_z_loss_coef", format_real(*factor));
  const auto rate = a.real("moe_router_bias_update_rate", 0);
  if (a.has("moe_router_enable_expert_bias"))
    a.give(rate ? "moe_router_bias_update_rate" : "moe_router_enable_expert_bias", "router_bias_update_rate",
           format_real(rate.value_or(1e-3)));
  else if (rate)
    a.note("moe_router_bias_update_rate", "has no effect: it is for --moe-router-enable-expert-bias");
}

}  // namespace tessera::config
