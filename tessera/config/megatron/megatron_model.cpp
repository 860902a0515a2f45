// The shape of a model by Megatron's arguments -> config_name and config_overrides.
#include <tessera/config/megatron/megatron_reading.h>

#include <tessera/base/text.h>

#include <algorithm>

namespace tessera::config {
namespace {

/// What --config_overrides takes: pairs, or where a value is no word or number, JSON.
std::string as_text(const MegatronMembers& members) {
  const bool json = std::any_of(members.begin(), members.end(), [](const auto& member) {
    return member.second.starts_with("{") || member.second.starts_with("[");
  });
  std::vector<std::string> pairs;
  for (const auto& [key, value] : members)
    pairs.push_back(json ? concat("\"", key, "\": ", value) : concat(key, "=", value));
  return json ? concat("{", join(pairs), "}") : join(pairs, ",");
}

class Model {
 public:
  explicit Model(MegatronArguments& arguments) : a_(arguments) {}

  void translate(bool config_name_given, bool overrides_given) {
    const char* first = first_given();
    if (first == nullptr) return;
    if (config_name_given || overrides_given)
      return a_.problem(first,
                        concat("describes the model, which ",
                               overrides_given ? "--config_overrides" : "--config_name or --model_name_or_path",
                               " does already: keep one of them"),
                        {"config_overrides"});
    for (const char* name : {"num_layers", "hidden_size", "num_attention_heads"})
      if (!a_.has(name))
        return a_.problem(first, concat("describes a model that has no --", dashed(name), ": add it"),
                          {"config_overrides", "config_name"});
    kind_ = kind();
    if (!consistent()) return;
    const char* preset = kind_ == Kind::llama        ? megatron_llama_family(a_)
                         : kind_ == Kind::starcoder2 ? "starcoder2-tiny"
                         : kind_ == Kind::opt        ? "opt-tiny"
                                                     : "gpt2";
    if (preset == nullptr) return;
    a_.give(first, "config_name", preset);  // every member that counts is overridden
    if (kind_ == Kind::llama) {
      llama();
      translate_megatron_family(a_, preset, members_);
    } else if (kind_ == Kind::starcoder2) {
      starcoder2();
    } else {
      kind_ == Kind::opt ? opt() : gpt2();
    }
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
    starcoder2,  ///< GPT-2 with rotary positions, grouped queries too
    llama
  };

  Kind kind() {
    position_ = a_.word("position_embedding_type", {"learned_absolute", "rope"})
                    .value_or(a_.has("use_rotary_position_embeddings") ? "rope" : "learned_absolute");
    norm_ = a_.word("normalization", {"layernorm", "rmsnorm"}).value_or("layernorm");
    if (position_ == "rope" && norm_ == "layernorm" && !a_.has("swiglu")) return Kind::starcoder2;
    if (position_ == "rope" || norm_ == "rmsnorm" || a_.has("swiglu") || a_.has("num_query_groups")) return Kind::llama;
    return a_.has("disable_bias_linear") ? Kind::opt : Kind::gpt2;
  }

  /// Other mixtures of GPT-2 and Llama are no model here.
  bool consistent() {
    if (kind_ != Kind::llama) return has_all();
    std::vector<std::string> missing;
    if (position_ != "rope") missing.push_back("--position-embedding-type rope");
    if (norm_ != "rmsnorm") missing.push_back("--normalization RMSNorm");
    if (!a_.has("swiglu")) missing.push_back("--swiglu");
    if (missing.empty()) return true;
    const char* sign = position_ == "rope"  ? (a_.has("position_embedding_type") ? "position_embedding_type"
                                                                                 : "use_rotary_position_embeddings")
                       : norm_ == "rmsnorm" ? "normalization"
                       : a_.has("swiglu")   ? "swiglu"
                                            : "num_query_groups";
    a_.problem(sign,
               concat("is Llama's, but ", join(missing), missing.size() == 1 ? " is" : " are",
                      " missing: the models here are GPT-2's (learned positions, LayerNorm, GELU), StarCoder2's (rope, "
                      "LayerNorm, GELU) "
                      "and Llama's"),
               {"config_overrides", "config_name"});
    return false;
  }

  bool has_all() {
    const char* owner = kind_ == Kind::gpt2 ? "GPT-2's" : kind_ == Kind::opt ? "OPT's" : "StarCoder2's";
    for (const char* name : {"num_experts", "multi_latent_attention", "qk_layernorm", "add_qkv_bias"})
      if (a_.has(name)) {
        a_.problem(name,
                   concat("is not ", owner,
                          ": describe a model in Llama's manner, too (--swiglu --normalization RMSNorm "
                          "--position-embedding-type rope --disable-bias-linear)"),
                   {"config_overrides", "config_name"});
        return false;
      }
    return true;
  }

  template <class T>
  void set(const char* key, const T& value) {
    set_member(members_, key, concat(value));
  }
  /// The argument's value, if it is given, for `key`.
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

  /// Heads have no size of their own.
  void check_channels(const char* owner) {
    const auto hidden = a_.whole("hidden_size", 1), heads = a_.whole("num_attention_heads", 1),
               channels = a_.whole("kv_channels", 1);
    if (channels && hidden && heads && *channels * *heads != *hidden)
      a_.problem("kv_channels",
                 concat(*channels, ": ", owner, " heads have hidden-size / num-attention-heads = ", *hidden / *heads,
                        " channels"),
                 {"config_overrides"});
  }

  std::string dropout(const char* name) { return format_real(a_.real(name, 0).value_or(0.1)); }

  /// What ungated MLPs have where --ffn-hidden-size does not say it.
  void default_inner(const char* key) {
    const auto hidden = a_.whole("hidden_size", 1);
    if (!a_.has("ffn_hidden_size") && hidden) set(key, *hidden * 4);
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
    set("use_bias", a_.has("disable_bias_linear") ? "false" : "true");
    set("attention_dropout", dropout("attention_dropout"));
    set("residual_dropout", dropout("hidden_dropout"));
    set("embedding_dropout", dropout("hidden_dropout"));
  }

  void opt() {
    common("num_hidden_layers", "hidden_size", "num_attention_heads", "ffn_dim", "max_position_embeddings", "",
           "init_std");
    default_inner("ffn_dim");
    check_channels("OPT's");
    const char* const epsilon = epsilon_argument();
    if (const auto given = a_.real(epsilon, 0); given && *given != 1e-5)
      a_.problem(epsilon, concat(format_real(*given), " is not OPT's, whose norms have 1e-5"), {"config_overrides"});
    set("activation_function", "gelu_new");
    set("enable_bias", "false");
    set("attention_dropout", dropout("attention_dropout"));
    set("dropout", dropout("hidden_dropout"));
    set("embedding_dropout", dropout("hidden_dropout"));
  }

  void gpt2() {
    common("n_layer", "n_embd", "n_head", "n_inner", "n_positions", "layer_norm_epsilon");
    check_channels("GPT-2's");
    real("attention_dropout", "attn_pdrop");
    real("hidden_dropout", "resid_pdrop");
    real("hidden_dropout", "embd_pdrop");
  }

  void llama() {
    common("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings",
           "rms_norm_eps");
    const auto hidden = a_.whole("hidden_size", 1);
    if (!a_.has("ffn_hidden_size") && hidden)
      set("intermediate_size", *hidden * 4 * 2 / 3 / 64 * 64);  // Megatron's rule for --swiglu
    if (!a_.has("norm_epsilon") && !a_.has("layernorm_epsilon")) set("rms_norm_eps", "1e-05");
    if (!a_.has("disable_bias_linear"))  // then it is a plain Llama
      for (const char* bias : {"attention_bias", "mlp_bias"}) set(bias, "true");
    grouped_queries();
    set("attention_dropout", dropout("attention_dropout"));
    if (a_.real("hidden_dropout", 0).value_or(0.1) != 0)
      a_.problem(a_.has("hidden_dropout") ? "hidden_dropout" : "num_layers",
                 "describes a Llama with hidden dropout (Megatron's default is 0.1), which Llamas "
                 "do not have: give --hidden-dropout 0",
                 {"config_overrides"});
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
