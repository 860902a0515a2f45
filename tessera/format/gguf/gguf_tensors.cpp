// Which Hugging Face tensor each tensor of a GGUF file becomes.

#include <algorithm>
#include <unordered_set>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/gguf/gguf_model.h>
#include <tessera/format/gguf/gguf_quants.h>

namespace tessera::format {
namespace {

using Shape = std::vector<std::int64_t>;

std::string shape_text(const Shape& shape) {
  std::vector<std::string> parts;
  for (std::int64_t n : shape) parts.push_back(std::to_string(n));
  return "[" + join(parts) + "]";
}

/// Collects tensors and everything that is wrong with them.
class Plan {
 public:
  Plan(const GgufFile& file, const GgufModel& model) : file_(file), model_(model) {}

  /// `shape` is that of the GGUF tensor.
  void add(const std::string& gguf, const std::string& hf, const Shape& shape,
           GgufRearrange rearrange = GgufRearrange::none, std::int64_t heads = 0) {
    wanted_.insert(gguf);
    const GgufTensor* source = file_.find(gguf);
    if (source == nullptr) {
      missing_.push_back(concat("missing tensor '", gguf, "' ", shape_text(shape)));
      return;
    }
    if (source->shape != shape)
      wrong_.push_back(concat("tensor '", gguf, "' has shape ", shape_text(source->shape), ", the metadata says ",
                              shape_text(shape)));
    if (!can_dequantise(source->type))
      wrong_.push_back(concat("tensor '", gguf, "' has type ", ggml_type_info(source->type).name,
                              ", which is not supported; supported are ", join(dequantisable_types())));
    else if (shape.size() == 1 && ggml_type_info(source->type).block_elements != 1)
      wrong_.push_back(concat("tensor '", gguf, "' is a vector of type ", ggml_type_info(source->type).name,
                              ": vectors must not be quantised"));
    Shape turned = shape;
    if (rearrange == GgufRearrange::transpose) std::reverse(turned.begin(), turned.end());
    tensors_.push_back({hf, std::move(turned), source, rearrange, heads});
  }

  /// Tensors that the model has no weight for, or that say what another one says.
  void leave_aside(const std::string& gguf) { wanted_.insert(gguf); }

  std::vector<HfTensor> finish() && {
    std::vector<std::string> problems = std::move(missing_);
    std::vector<std::string> absent;  // for "did you mean"
    for (const std::string& name : wanted_)
      if (file_.find(name) == nullptr) absent.push_back(name);
    std::sort(absent.begin(), absent.end());
    problems.insert(problems.end(), wrong_.begin(), wrong_.end());
    constexpr std::size_t most = 40;
    std::size_t all = problems.size();
    for (const GgufTensor& tensor : file_.tensors()) {
      if (wanted_.contains(tensor.name) || ++all > most)
        continue;  // the nearest name takes a search: for those shown only
      const auto near = nearest(tensor.name, absent);
      problems.push_back(concat("unexpected tensor '", tensor.name, "' ", shape_text(tensor.shape),
                                near ? concat("; did you mean '", *near, "'?") : ""));
    }
    if (all == 0) return std::move(tensors_);
    problems.resize(std::min(problems.size(), most));
    throw InputError(concat(file_.path(), ": the tensors are not those of a ",
                            model_.prefix.substr(0, model_.prefix.size() - 1), " model of ", model_.layers, " layers (",
                            all, all == 1 ? " problem):\n  " : " problems):\n  ", join(problems, "\n  "),
                            all > most ? concat("\n  and ", all - most, " more") : ""));
  }

 private:
  const GgufFile& file_;
  const GgufModel& model_;
  std::unordered_set<std::string> wanted_;
  std::vector<std::string> missing_, wrong_;
  std::vector<HfTensor> tensors_;
};

void add_llama(Plan& plan, const GgufModel& m) {
  const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const bool interleaved = m.architecture == GgufArchitecture::llama;
  const auto rotation = interleaved ? GgufRearrange::undo_interleaving : GgufRearrange::none;
  const bool qkv_bias = m.attention_bias || m.architecture == GgufArchitecture::qwen2;
  const bool o_bias = m.attention_bias && m.architecture != GgufArchitecture::qwen2;
  plan.add("token_embd.weight", "model.embed_tokens.weight", {m.vocab, m.hidden});
  plan.add("output_norm.weight", "model.norm.weight", {m.hidden});
  if (!m.tied) plan.add("output.weight", "lm_head.weight", {m.vocab, m.hidden});
  if (interleaved) plan.leave_aside("rope_freqs.weight");
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string from = concat("blk.", i, "."), to = concat("model.layers.", i, ".");
    const std::string attention = to + "self_attn.", mlp = to + "mlp.";
    plan.add(from + "attn_norm.weight", to + "input_layernorm.weight", {m.hidden});
    plan.add(from + "ffn_norm.weight", to + "post_attention_layernorm.weight", {m.hidden});
    plan.add(from + "attn_q.weight", attention + "q_proj.weight", {q, m.hidden}, rotation, m.heads);
    plan.add(from + "attn_k.weight", attention + "k_proj.weight", {kv, m.hidden}, rotation, m.kv_heads);
    plan.add(from + "attn_v.weight", attention + "v_proj.weight", {kv, m.hidden});
    plan.add(from + "attn_output.weight", attention + "o_proj.weight", {m.hidden, q});
    if (qkv_bias) {
      plan.add(from + "attn_q.bias", attention + "q_proj.bias", {q}, rotation, m.heads);
      plan.add(from + "attn_k.bias", attention + "k_proj.bias", {kv}, rotation, m.kv_heads);
      plan.add(from + "attn_v.bias", attention + "v_proj.bias", {kv});
    }
    if (o_bias) plan.add(from + "attn_output.bias", attention + "o_proj.bias", {m.hidden});
    if (m.architecture == GgufArchitecture::qwen3) {
      plan.add(from + "attn_q_norm.weight", attention + "q_norm.weight", {m.head_dim});
      plan.add(from + "attn_k_norm.weight", attention + "k_norm.weight", {m.head_dim});
    }
    plan.add(from + "ffn_gate.weight", mlp + "gate_proj.weight", {m.intermediate, m.hidden});
    plan.add(from + "ffn_up.weight", mlp + "up_proj.weight", {m.intermediate, m.hidden});
    plan.add(from + "ffn_down.weight", mlp + "down_proj.weight", {m.hidden, m.intermediate});
    if (m.mlp_bias && interleaved) {
      plan.add(from + "ffn_gate.bias", mlp + "gate_proj.bias", {m.intermediate});
      plan.add(from + "ffn_up.bias", mlp + "up_proj.bias", {m.intermediate});
      plan.add(from + "ffn_down.bias", mlp + "down_proj.bias", {m.hidden});
    }
  }
}

void add_gpt2(Plan& plan, const GgufModel& m) {
  plan.add("token_embd.weight", "transformer.wte.weight", {m.vocab, m.hidden});
  plan.add("position_embd.weight", "transformer.wpe.weight", {m.context, m.hidden});
  plan.add("output_norm.weight", "transformer.ln_f.weight", {m.hidden});
  plan.add("output_norm.bias", "transformer.ln_f.bias", {m.hidden});
  if (m.tied)
    plan.leave_aside("output.weight");
  else
    plan.add("output.weight", "lm_head.weight", {m.vocab, m.hidden});
  struct Linear {
    const char *from, *to;
    std::int64_t out, in;
  };
  const std::vector<Linear> linears = {{"attn_qkv", "attn.c_attn", 3 * m.hidden, m.hidden},
                                       {"attn_output", "attn.c_proj", m.hidden, m.hidden},
                                       {"ffn_up", "mlp.c_fc", m.intermediate, m.hidden},
                                       {"ffn_down", "mlp.c_proj", m.hidden, m.intermediate}};
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string from = concat("blk.", i, "."), to = concat("transformer.h.", i, ".");
    for (const auto& [norm, name] : {std::pair("attn_norm", "ln_1"), std::pair("ffn_norm", "ln_2")})
      for (const char* part : {".weight", ".bias"}) plan.add(from + norm + part, to + name + part, {m.hidden});
    for (const Linear& l : linears) {
      plan.add(concat(from, l.from, ".weight"), concat(to, l.to, ".weight"), {l.out, l.in}, GgufRearrange::transpose);
      plan.add(concat(from, l.from, ".bias"), concat(to, l.to, ".bias"), {l.out});
    }
  }
}

}  // namespace

std::vector<HfTensor> hf_tensors(const GgufFile& file, const GgufModel& model) {
  Plan plan(file, model);
  // Absurd counts would only make an absurd list of missing tensors.
  constexpr std::int64_t most_layers = 1 << 14;
  const auto found = static_cast<std::int64_t>(file.tensors().size());
  if (model.layers > std::min(found, most_layers))
    throw InputError(concat(file.path(), ": metadata '", model.prefix, "block_count' is ", model.layers,
                            ", but the file has only ", found, " tensors (and at most ", most_layers,
                            " layers are supported)"));
  if (model.architecture == GgufArchitecture::gpt2)
    add_gpt2(plan, model);
  else
    add_llama(plan, model);
  return std::move(plan).finish();
}

}  // namespace tessera::format
