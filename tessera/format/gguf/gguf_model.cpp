#include <tessera/format/gguf/gguf_model.h>

#include <array>
#include <cstring>
#include <limits>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::format {
namespace {

struct Name {
  const char* name;
  GgufArchitecture architecture;
};
constexpr std::array<Name, 11> kArchitectures{{{"llama", GgufArchitecture::llama},
                                               {"qwen2", GgufArchitecture::qwen2},
                                               {"qwen3", GgufArchitecture::qwen3},
                                               {"gpt2", GgufArchitecture::gpt2},
                                               {"qwen2moe", GgufArchitecture::qwen2moe},
                                               {"qwen3moe", GgufArchitecture::qwen3moe},
                                               {"olmoe", GgufArchitecture::olmoe},
                                               {"gemma", GgufArchitecture::gemma},
                                               {"gemma2", GgufArchitecture::gemma2},
                                               {"gemma3", GgufArchitecture::gemma3},
                                               {"phi3", GgufArchitecture::phi3}}};

/// Settings that change the model's computation and that Hugging Face's classes of these architectures do not support.
constexpr std::array<const char*, 12> kForeign = {"expert_count",
                                                  "attention.scale",
                                                  "attention.clamp_kqv",
                                                  "attention.max_alibi_bias",
                                                  "logit_scale",
                                                  "residual_scale",
                                                  "embedding_scale",
                                                  "attn_logit_softcapping",
                                                  "final_logit_softcapping",
                                                  "use_parallel_residual",
                                                  "attention.temperature_length",
                                                  "rope.scaling.yarn_log_multiplier"};

/// Reads numbers of one model, with error messages that name file and key.
class Reader {
 public:
  Reader(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  std::optional<std::int64_t> optional_count(const std::string& key) const {
    const auto n = file_.integer(prefix_ + key);
    if (n && (*n < 1 || *n > std::numeric_limits<std::int32_t>::max()))
      fail("metadata '", prefix_, key, "' is ", *n, "; it must be between 1 and 2^31 - 1");
    return n;
  }

  std::int64_t count(const std::string& key) const {
    const auto n = optional_count(key);
    if (!n) fail("the metadata has no '", prefix_, key, "', which is required");
    return *n;
  }

  std::optional<double> positive(const std::string& key) const {
    const auto x = file_.real(prefix_ + key);
    if (x && !(*x > 0 && *x <= std::numeric_limits<float>::max()))
      fail("metadata '", prefix_, key, "' is ", *x, "; it must be positive and finite");
    return x;
  }

  std::optional<std::int64_t> token(const std::string& key, std::int64_t vocab) const {
    const auto id = file_.integer("tokenizer.ggml." + key);
    if (id && (*id < 0 || *id >= vocab))
      fail("metadata 'tokenizer.ggml.", key, "' is ", *id, ", outside the vocabulary of ", vocab, " tokens");
    return id;
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(file_.path(), ": ", parts...));
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

GgufArchitecture architecture_of(const GgufFile& file) {
  const auto name = file.text("general.architecture");
  if (!name) throw InputError(concat(file.path(), ": the metadata has no 'general.architecture'"));
  std::vector<std::string> known;
  for (const Name& row : kArchitectures) {
    if (*name == row.name) return row.architecture;
    known.emplace_back(row.name);
  }
  throw InputError(
      concat(file.path(), ": the architecture '", *name, "' is not supported; supported are ", join(known)));
}

bool is_zero(const GgufFile& file, const std::string& key) {
  const GgufValue& value = *file.value(key);
  if (value.type == GgufType::boolean) return !*file.boolean(key);
  return value.type != GgufType::string && value.type != GgufType::array && *file.real(key) == 0;
}

bool has_experts(GgufArchitecture architecture) {
  return architecture == GgufArchitecture::llama || architecture == GgufArchitecture::qwen2moe ||
         architecture == GgufArchitecture::qwen3moe || architecture == GgufArchitecture::olmoe;
}

/// Whether the architecture's class supports this setting even though it is in kForeign.
bool knows(GgufArchitecture architecture, std::string_view name) {
  if (name == "expert_count") return has_experts(architecture);
  if (name == "attn_logit_softcapping") return architecture == GgufArchitecture::gemma2;
  if (name == "final_logit_softcapping")
    return architecture == GgufArchitecture::gemma2 || architecture == GgufArchitecture::gemma3;
  return false;
}

void refuse_foreign(const GgufFile& file, GgufArchitecture architecture, const std::string& prefix) {
  for (const char* name : kForeign) {
    const std::string key = prefix + name;
    if (!knows(architecture, name) && file.has(key) && !is_zero(file, key))
      throw InputError(
          concat(file.path(), ": metadata '", key, "' is set, which is not supported for this architecture"));
  }
  if (const auto parts = file.integer("split.count"); parts && *parts > 1)
    throw InputError(concat(file.path(), ": is one of ", *parts,
                            " parts of a split file; join them first: llama-gguf-split --merge FIRST_PART OUT.gguf"));
}

void read_attention(const GgufFile& file, const Reader& read, GgufModel& model) {
  model.heads = read.count("attention.head_count");
  model.kv_heads = read.optional_count("attention.head_count_kv").value_or(model.heads);
  if (model.heads % model.kv_heads != 0)
    read.fail(model.heads, " attention heads are not a multiple of ", model.kv_heads, " key and value heads");
  const auto key_length = read.optional_count("attention.key_length");
  if (!key_length && model.hidden % model.heads != 0)
    read.fail("embedding_length ", model.hidden, " is not a multiple of head_count ", model.heads);
  model.head_dim = key_length.value_or(model.hidden / model.heads);
  const std::int64_t value_length = read.optional_count("attention.value_length").value_or(model.head_dim);
  if (value_length != model.head_dim)
    read.fail("attention.value_length ", value_length, " differs from the key length ", model.head_dim,
              ", which is not supported");
  if (model.architecture == GgufArchitecture::gpt2) {
    if (model.kv_heads != model.heads || model.head_dim * model.heads != model.hidden)
      read.fail("gpt2 must have as many key heads as heads (", model.heads, ", not ", model.kv_heads, ") and heads of ",
                model.hidden / model.heads, " dimensions (not ", model.head_dim, ")");
    return;
  }
  if (model.head_dim % 2 != 0) read.fail("rotary embedding needs heads of even size, not ", model.head_dim);
  const std::int64_t rotated = read.optional_count("rope.dimension_count").value_or(model.head_dim);
  const bool partly = model.architecture == GgufArchitecture::phi3 && rotated < model.head_dim && rotated % 2 == 0;
  if (rotated != model.head_dim && !partly)
    read.fail("rope.dimension_count ", rotated, " differs from the head size ", model.head_dim,
              ": partially rotated heads are not supported");
  model.rotated = rotated;
  model.rope_theta = read.positive("rope.freq_base").value_or(10000.0);
  const auto window = file.integer(model.prefix + "attention.sliding_window");
  if (window && *window > 0) {
    const bool known = model.architecture == GgufArchitecture::llama || model.norms_after() ||
                       model.architecture == GgufArchitecture::phi3;
    if (!known)
      read.fail("attention.sliding_window ", *window, ": the file does not specify which layers of a ", model.prefix,
                " model use it, so this is not supported");
    model.sliding_window = *window;
  }
}

/// `expert_count` missing or 0 means no experts, if the architecture allows that.
void read_experts(const GgufFile& file, const Reader& read, GgufModel& model) {
  if (!has_experts(model.architecture)) return;
  const std::string key = model.prefix + "expert_count";
  const bool none = !file.has(key) || is_zero(file, key);
  if (none && model.architecture == GgufArchitecture::llama) return;
  GgufExperts e;
  e.count = read.count("expert_count");
  e.used = read.count("expert_used_count");
  if (e.used > e.count) read.fail("expert_used_count is ", e.used, ", but there are only ", e.count, " experts");
  const bool widths_of_their_own =
      model.architecture == GgufArchitecture::qwen2moe || model.architecture == GgufArchitecture::qwen3moe;
  e.intermediate = widths_of_their_own ? read.count("expert_feed_forward_length") : model.intermediate;
  if (model.architecture == GgufArchitecture::qwen2moe)
    e.shared_intermediate = read.count("expert_shared_feed_forward_length");
  model.experts = e;
}

void read_vocabulary(const GgufFile& file, const Reader& read, GgufModel& model) {
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    read.fail("tensor 'token_embd.weight' is missing or not a matrix; it determines the vocabulary size");
  model.vocab = embedding->shape[0];
  const GgufValue* tokens = file.value("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->type == GgufType::array && tokens->count != static_cast<std::uint64_t>(model.vocab))
    read.fail("the tokenizer has ", tokens->count, " tokens, but 'token_embd.weight' has ", model.vocab, " rows");
  const std::int64_t said = read.optional_count("vocab_size").value_or(model.vocab);
  if (said != model.vocab) read.fail("vocab_size is ", said, ", but 'token_embd.weight' has ", model.vocab, " rows");
  model.bos = read.token("bos_token_id", model.vocab);
  model.eos = read.token("eos_token_id", model.vocab);
  model.eot = read.token("eot_token_id", model.vocab);
  model.eom = read.token("eom_token_id", model.vocab);
  model.pad = read.token("padding_token_id", model.vocab);
  model.unk = read.token("unknown_token_id", model.vocab);
}

/// Converters write GPT-2's embedding again as the output head.
bool same_bytes(const GgufFile& file, const GgufTensor& a, const GgufTensor& b) {
  if (a.type != b.type || a.shape != b.shape) return false;
  return std::memcmp(file.bytes(a).data(), file.bytes(b).data(), file.bytes(a).size()) == 0;
}

}  // namespace

GgufModel read_gguf_model(const GgufFile& file) {
  GgufModel model;
  model.architecture = architecture_of(file);
  model.prefix = concat(*file.text("general.architecture"), ".");
  refuse_foreign(file, model.architecture, model.prefix);
  const Reader read(file, model.prefix);
  model.layers = read.count("block_count");
  model.hidden = read.count("embedding_length");
  model.intermediate = read.count("feed_forward_length");
  model.context = read.count("context_length");
  read_vocabulary(file, read, model);
  read_attention(file, read, model);
  read_experts(file, read, model);
  if (knows(model.architecture, "attn_logit_softcapping"))
    model.score_cap = read.positive("attn_logit_softcapping").value_or(0);
  if (knows(model.architecture, "final_logit_softcapping"))
    model.logit_cap = read.positive("final_logit_softcapping").value_or(0);
  const bool gpt2 = model.architecture == GgufArchitecture::gpt2;
  const auto eps = read.positive(gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon");
  if (!eps)
    read.fail("the metadata has no '", model.prefix, "attention.layer_norm", gpt2 ? "" : "_rms",
              "_epsilon', which is required");
  model.norm_eps = *eps;
  const GgufTensor* output = file.find("output.weight");
  model.tied = output == nullptr || (gpt2 && same_bytes(file, *output, *file.find("token_embd.weight")));
  model.attention_bias = file.find("blk.0.attn_q.bias") != nullptr;
  model.mlp_bias = file.find("blk.0.ffn_up.bias") != nullptr;
  if (!gpt2) model.rope_scaling = read_rope_scaling(file, model);
  return model;
}

}  // namespace tessera::format
