// The model's shape in Megatron's arguments -> config_name and config_overrides.
#include <tessera/config/megatron/megatron_reading.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

#include <algorithm>

namespace tessera::config {
namespace {

/// Converts a pair's value to JSON.
std::string as_json(const std::string& value) {
  try {
    return dump_json(parse_json(value, "value"), -1);
  } catch (const InputError&) {
    return dump_json(Value::of(value), -1);
  }
}

/// Text for --config_overrides: pairs, or JSON if a value is not a word or number.
std::string as_text(const MegatronMembers& members) {
  const bool json = std::any_of(members.begin(), members.end(), [](const auto& member) {
    return member.second.starts_with("{") || member.second.starts_with("[");
  });
  std::vector<std::string> pairs;
  for (const auto& [key, value] : members)
    pairs.push_back(json ? concat("\"", key, "\": ", as_json(value)) : concat(key, "=", value));
  return json ? concat("{", join(pairs), "}") : join(pairs, ",");
}

class Model {
 public:
  explicit Model(MegatronArguments& arguments) : a_(arguments) {}

  void translate(bool config_name_given, bool overrides_given) {
    const char* first = first_given();
    if (first == nullptr) {
      for (const char* name : {"no_bias_gelu_fusion", "rotary_percent"})
        if (a_.has(name)) a_.note(name, "has no effect: the model's config.json determines it");
      if (const auto depths = a_.whole("mtp_num_layers", 1))
        a_.problem("mtp_num_layers",
                   concat(*depths, ": a given model's own config determines it; set \"mtp_num_layers\": ", *depths,
                          " in its config.json and remove the argument"),
                   {"config_overrides"});
      return;
    }
    if (config_name_given || overrides_given)
      return a_.problem(first,
                        concat("describes the model, which ",
                               overrides_given ? "--config_overrides" : "--config_name or --model_name_or_path",
                               " already does: keep one of them"),
                        {"config_overrides"});
    for (const char* name : {"num_layers", "hidden_size", "num_attention_heads"})
      if (!a_.has(name))
        return a_.problem(first, concat("describes a model without --", dashed(name), ": add it"),
                          {"config_overrides", "config_name"});
    kind_ = kind();
    const MegatronFamily family = family_of(kind_);
    if (family.preset == nullptr && !family.built)
      return a_.problem(family.argument, family.why, {"config_overrides", "config_name"});
    if (family.preset == nullptr) {
      kind_ = Kind::megatron;
      a_.note(family.argument, concat(family.why, family.why.empty() ? "" : ": ",
                                      "no family in transformers matches: the model is built as Megatron's own "
                                      "(model_type megatron_gpt), which only Tessera reads"));
    }
    // all relevant members are overridden
    const char* const preset = family.preset == nullptr ? "megatron-gpt-tiny" : family.preset;
    a_.give(first, "config_name", preset);
    switch (kind_) {
      case Kind::gpt2:
        gpt2();
        break;
      case Kind::opt:
        opt();
        break;
      case Kind::starcoder2:
        starcoder2();
        break;
      case Kind::llama:
        llama();
        translate_megatron_family(a_, preset, members_);
        break;
      case Kind::megatron:
        megatron();
        break;
    }
    whole("mtp_num_layers", "mtp_num_layers");
    a_.give(first, "config_overrides", as_text(members_));
  }

 private:
  static constexpr const char* names[] = {"num_layers",
                                          "hidden_size",
                                          "num_attention_heads",
                                          "ffn_hidden_size",
                                          "kv_channels",
                                          "group_query_attention",
                                          "num_query_groups",
                                          "max_position_embeddings",
                                          "vocab_size",
                                          "position_embedding_type",
                                          "use_rotary_position_embeddings",
                                          "rotary_base",
                                          "normalization",
                                          "norm_epsilon",
                                          "layernorm_epsilon",
                                          "swiglu",
                                          "squared_relu",
                                          "apply_layernorm_1p",
                                          "disable_bias_linear",
                                          "add_qkv_bias",
                                          "qk_layernorm",
                                          "multi_latent_attention",
                                          "num_experts",
                                          "untie_embeddings_and_output_weights",
                                          "attention_dropout",
                                          "hidden_dropout",
                                          "init_method_std"};

  const char* first_given() const {
    for (const char* name : names)
      if (a_.has(name)) return name;
    return nullptr;
  }
  static std::string dashed(std::string name) {
    for (char& c : name)
      if (c == '_') c = '-';
    return name;
  }

  enum class Kind : unsigned char {
    gpt2,
    opt,         ///< GPT-2 without biases
    starcoder2,  ///< GPT-2 with rotary positions, possibly with grouped queries
    llama,
    megatron  ///< architectures/families/megatron_gpt.cpp: any other combination
  };

  Kind kind() {
    position_ = a_.word("position_embedding_type", {"learned_absolute", "rope"})
                    .value_or(a_.has("use_rotary_position_embeddings") ? "rope" : "learned_absolute");
    norm_ = a_.word("normalization", {"layernorm", "rmsnorm"}).value_or("layernorm");
    if (position_ == "rope" && norm_ == "layernorm" && !a_.has("swiglu")) return Kind::starcoder2;
    if (position_ == "rope" || norm_ == "rmsnorm" || a_.has("swiglu") || a_.has("num_query_groups")) return Kind::llama;
    return a_.has("disable_bias_linear") ? Kind::opt : Kind::gpt2;
  }

  static MegatronFamily no_family(const char* argument, const std::string& why) { return {nullptr, argument, why}; }

  MegatronFamily family_of(Kind kind) {
    if (a_.has("squared_relu") && a_.has("swiglu"))
      return {nullptr, "squared_relu", "contradicts --swiglu: keep one of them", /*built=*/false};
    if (a_.has("num_experts") && !a_.has("disable_bias_linear"))
      return {nullptr, "num_experts", "needs --disable-bias-linear: experts with biases are not implemented",
              /*built=*/false};
    if (a_.has("multi_latent_attention") && a_.has("add_qkv_bias"))
      return {nullptr, "add_qkv_bias", "with --multi-latent-attention: latents have no biases; remove it",
              /*built=*/false};
    if (a_.has("experimental_attention_variant") && !a_.has("swiglu"))
      return {nullptr, "experimental_attention_variant", "needs --swiglu, since its convolutions are followed by silu",
              /*built=*/false};
    if (a_.has("attention_output_gate") && a_.has("multi_latent_attention"))
      return {nullptr, "attention_output_gate", "with --multi-latent-attention is not supported: remove it",
              /*built=*/false};
    for (const char* name :
         {"experimental_attention_variant", "attention_output_gate", "squared_relu", "apply_layernorm_1p"})
      if (a_.has(name)) return no_family(name, "");
    if (a_.has("mtp_num_layers") && position_ != "rope")
      return {nullptr, "mtp_num_layers", "needs --position-embedding-type rope, as in Megatron-LM", /*built=*/false};
    if (a_.has("mtp_num_layers") && norm_ == "layernorm" && !a_.has("swiglu"))
      return no_family("mtp_num_layers", "without --swiglu and --normalization RMSNorm");
    if (const double part = rotary_part(); part <= 0 || part > 1)
      return {nullptr, "rotary_percent", concat(format_real(part), ": it must be above 0 and at most 1"),
              /*built=*/false};
    if (position_ == "rope" && rotary_part() != 1 && !a_.has("multi_latent_attention"))
      return no_family("rotary_percent", format_real(rotary_part()));
    return kind == Kind::llama ? in_llamas_manner() : in_gpt2s_manner(kind);
  }

  MegatronFamily in_llamas_manner() {
    std::vector<std::string> missing;
    if (position_ != "rope") missing.push_back("--position-embedding-type rope");
    if (norm_ != "rmsnorm") missing.push_back("--normalization RMSNorm");
    if (!a_.has("swiglu")) missing.push_back("--swiglu");
    if (!missing.empty()) {
      const char* sign = position_ == "rope"  ? (a_.has("position_embedding_type") ? "position_embedding_type"
                                                                                   : "use_rotary_position_embeddings")
                         : norm_ == "rmsnorm" ? "normalization"
                         : a_.has("swiglu")   ? "swiglu"
                                              : "num_query_groups";
      return no_family(sign, concat("without ", join(missing, " and ")));
    }
    if (a_.real("hidden_dropout", 0).value_or(0.1) != 0)
      return no_family(a_.has("hidden_dropout") ? "hidden_dropout" : "num_layers",
                       "with hidden dropout in a Llama-like model (Megatron's default is 0.1; with --hidden-dropout 0 "
                       "it belongs to Llama's family)");
    return megatron_llama_family(a_);
  }

  MegatronFamily in_gpt2s_manner(Kind kind) {
    for (const char* name : {"multi_latent_attention", "num_experts", "qk_layernorm"})
      if (a_.has(name)) return no_family(name, "without --swiglu");
    if (a_.has("add_qkv_bias") && a_.has("disable_bias_linear")) return no_family("add_qkv_bias", "without --swiglu");
    if (kind == Kind::starcoder2) return {"starcoder2-tiny"};
    const auto hidden = a_.whole("hidden_size", 1), heads = a_.whole("num_attention_heads", 1),
               channels = a_.whole("kv_channels", 1);
    if (channels && hidden && heads && *channels * *heads != *hidden)
      return no_family("kv_channels", concat(*channels, " with ", *heads, " heads of ", *hidden));
    if (kind == Kind::gpt2) return {"gpt2"};
    const char* const epsilon = epsilon_argument();
    const auto given = a_.real(epsilon, 0);
    if (given && *given != 1e-5) return no_family(epsilon, concat(format_real(*given), " without biases"));
    return {"opt-tiny"};
  }

  double rotary_part() { return a_.real("rotary_percent", 0).value_or(1); }

  template <class T>
  void set(const char* key, const T& value) {
    set_member(members_, key, concat(value));
  }
  /// Sets `key` to the argument's value, if it is given.
  void whole(const char* name, const char* key) {
    if (const auto value = a_.whole(name, 1)) set(key, *value);
  }
  void real(const char* name, const char* key) {
    if (const auto value = a_.real(name, 0)) set(key, format_real(*value));
  }

  void common(const char* layers, const char* hidden, const char* heads, const char* inner, const char* positions,
              const char* epsilon, const char* range = "initializer_range") {
    whole("num_layers", layers);
    whole("hidden_size", hidden);
    whole("num_attention_heads", heads);
    whole("ffn_hidden_size", inner);
    const char* length = a_.has("max_position_embeddings") ? "max_position_embeddings" : "seq_length";
    whole(length, positions);
    if (*epsilon) real(epsilon_argument(), epsilon);
    real("init_method_std", range);
    if (const auto size = a_.whole("vocab_size", 1)) {
      set("vocab_size", *size);
      set("bos_token_id", *size - 1);
      set("eos_token_id", *size - 1);
    }
    set("tie_word_embeddings", a_.has("untie_embeddings_and_output_weights") ? "false" : "true");
  }

  const char* epsilon_argument() const { return a_.has("norm_epsilon") ? "norm_epsilon" : "layernorm_epsilon"; }

  /// Megatron's fused GELU is the tanh approximation, and only applies where biases are added with it.
  const char* gelu(const char* by_tanh) const {
    return a_.has("disable_bias_linear") || a_.has("no_bias_gelu_fusion") ? "gelu" : by_tanh;
  }

  std::string dropout(const char* name) { return format_real(a_.real(name, 0).value_or(0.1)); }

  /// Sets Megatron's default of --ffn-hidden-size for ungated MLPs.
  void default_inner(const char* key) {
    const auto hidden = a_.whole("hidden_size", 1);
    if (!a_.has("ffn_hidden_size") && hidden) set(key, *hidden * 4);
  }

  /// Sets Megatron's default of --ffn-hidden-size for --swiglu.
  void default_gated_inner() {
    const auto hidden = a_.whole("hidden_size", 1);
    if (!a_.has("ffn_hidden_size") && hidden) set("intermediate_size", *hidden * 4 * 2 / 3 / 64 * 64);
  }

  void grouped_queries() {
    const auto heads = a_.whole("num_attention_heads", 1), groups = a_.whole("num_query_groups", 1);
    if (groups && !a_.has("group_query_attention"))
      a_.problem("num_query_groups", concat(*groups, " needs --group-query-attention"), {"config_overrides"});
    if (heads) set("num_key_value_heads", groups.value_or(*heads));
    const auto hidden = a_.whole("hidden_size", 1), channels = a_.whole("kv_channels", 1);
    if (heads && hidden) set("head_dim", channels.value_or(*hidden / std::max<std::int64_t>(*heads, 1)));
    set("rope_theta", format_real(a_.real("rotary_base", 1).value_or(10000)));
  }

  void starcoder2() {
    common("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings",
           "norm_epsilon");
    default_inner("intermediate_size");
    grouped_queries();
    set("hidden_act", gelu("gelu_pytorch_tanh"));
    set("use_bias", a_.has("disable_bias_linear") ? "false" : "true");
    set("attention_dropout", dropout("attention_dropout"));
    set("residual_dropout", dropout("hidden_dropout"));
    set("embedding_dropout", dropout("hidden_dropout"));
  }

  void opt() {
    common("num_hidden_layers", "hidden_size", "num_attention_heads", "ffn_dim", "max_position_embeddings", "",
           "init_std");
    default_inner("ffn_dim");
    set("activation_function", gelu("gelu_new"));
    set("enable_bias", "false");
    set("attention_dropout", dropout("attention_dropout"));
    set("dropout", dropout("hidden_dropout"));
    set("embedding_dropout", dropout("hidden_dropout"));
  }

  void gpt2() {
    common("n_layer", "n_embd", "n_head", "n_inner", "n_positions", "layer_norm_epsilon");
    set("activation_function", gelu("gelu_new"));
    real("attention_dropout", "attn_pdrop");
    real("hidden_dropout", "resid_pdrop");
    real("hidden_dropout", "embd_pdrop");
  }

  void llama() {
    common("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings",
           "rms_norm_eps");
    default_gated_inner();
    if (!a_.has("norm_epsilon") && !a_.has("layernorm_epsilon")) set("rms_norm_eps", "1e-05");
    if (!a_.has("disable_bias_linear"))  // otherwise it is a plain Llama
      for (const char* bias : {"attention_bias", "mlp_bias"}) set(bias, "true");
    grouped_queries();
    set("attention_dropout", dropout("attention_dropout"));
  }

  void megatron() {
    common("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings",
           "norm_epsilon");
    const bool gated = a_.has("swiglu"), biases = !a_.has("disable_bias_linear");
    gated ? default_gated_inner() : default_inner("intermediate_size");
    grouped_queries();
    set("position_embedding_type", position_);
    const bool latent = a_.has("multi_latent_attention");  // its rotary part is always rotated as a whole
    if (position_ == "rope" && !latent) set("partial_rotary_factor", format_real(rotary_part()));
    set("normalization", norm_ == "rmsnorm" ? "RMSNorm" : "LayerNorm");
    set("layernorm_zero_centered_gamma", a_.has("apply_layernorm_1p") ? "true" : "false");
    set("hidden_act", gated ? "silu" : a_.has("squared_relu") ? "relu2" : gelu("gelu_new"));
    set("gated_linear_unit", gated ? "true" : "false");
    set("add_bias_linear", biases ? "true" : "false");
    set("add_qkv_bias", biases || a_.has("add_qkv_bias") ? "true" : "false");
    set("qk_layernorm", a_.has("qk_layernorm") ? "true" : "false");
    set("attention_dropout", dropout("attention_dropout"));
    set("hidden_dropout", dropout("hidden_dropout"));
    if (a_.has("attention_output_gate")) set("attn_output_gate", "true");
    if (a_.word("experimental_attention_variant", {"gated_delta_net"})) linear_attention();
    if (latent) translate_megatron_latents(a_, members_);
    if (a_.has("num_experts")) translate_megatron_gpt_experts(a_, members_);
  }

  void linear_attention() {
    const auto layers = a_.whole("num_layers", 1);
    std::vector<std::string> types;
    for (const bool linear : megatron_linear_layers(a_, layers.value_or(1)))
      types.emplace_back(linear ? R"("linear_attention")" : R"("full_attention")");
    set("layer_types", concat("[", join(types), "]"));
    whole("linear_conv_kernel_dim", "linear_conv_kernel_dim");
    whole("linear_key_head_dim", "linear_key_head_dim");
    whole("linear_value_head_dim", "linear_value_head_dim");
    whole("linear_num_key_heads", "linear_num_key_heads");
    whole("linear_num_value_heads", "linear_num_value_heads");
  }

  MegatronArguments& a_;
  Kind kind_ = Kind::gpt2;
  std::string position_, norm_;
  MegatronMembers members_;
};

}  // namespace

void set_member(MegatronMembers& members, const std::string& key, const std::string& value) {
  const auto known =
      std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == key; });
  if (known == members.end())
    members.emplace_back(key, value);
  else
    known->second = value;
}

void translate_megatron_model(MegatronArguments& arguments, bool config_name_given, bool overrides_given) {
  Model(arguments).translate(config_name_given, overrides_given);
}

}  // namespace tessera::config
