// Maps the tensors of a GGUF file to Hugging Face tensors.

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

/// Collects tensors and all problems with them.
class Plan {
 public:
  Plan(const GgufFile& file, const GgufModel& model) : file_(file), model_(model) {}

  /// Adds a tensor; `shape` is that of the GGUF tensor. Returns the resulting Hugging Face tensor; null if it is
  /// missing.
  HfTensor* add(const std::string& gguf, const std::string& hf, const Shape& shape,
                GgufRearrange rearrange = GgufRearrange::none, std::int64_t heads = 0) {
    const GgufTensor* source = find(gguf, shape);
    if (source == nullptr) return nullptr;
    Shape turned = shape;
    if (rearrange == GgufRearrange::transpose) std::reverse(turned.begin(), turned.end());
    return &tensors_.emplace_back(HfTensor{hf, std::move(turned), source, rearrange, heads});
  }

  /// Adds a norm: Gemma's are stored with 1 added.
  void add_norm(const std::string& gguf, const std::string& hf, std::int64_t size) {
    HfTensor* const norm = add(gguf, hf, {size});
    if (norm != nullptr && model_.gemma()) norm->offset = -1;
  }

  /// Adds a stack [experts, out, in] as tensors BEFORE0AFTER, BEFORE1AFTER, ...
  void add_experts(const std::string& gguf, const std::string& before, const std::string& after, const Shape& shape) {
    const std::int64_t experts = model_.experts->count;
    const GgufTensor* source = find(gguf, {experts, shape[0], shape[1]});
    for (std::int64_t e = 0; source != nullptr && e < experts; ++e)
      tensors_.push_back(
          {.name = concat(before, e, after), .shape = shape, .source = source, .part = e, .parts = experts});
  }

  /// Marks a tensor that has no counterpart in the model or repeats another one.
  void leave_aside(const std::string& gguf) { wanted_.insert(gguf); }

  std::vector<HfTensor> finish() && {
    std::vector<std::string> problems = std::move(missing_);
    std::vector<std::string> absent;  // candidates for "did you mean"
    for (const std::string& name : wanted_)
      if (file_.find(name) == nullptr) absent.push_back(name);
    std::sort(absent.begin(), absent.end());
    problems.insert(problems.end(), wrong_.begin(), wrong_.end());
    constexpr std::size_t most = 40;
    std::size_t all = problems.size();
    for (const GgufTensor& tensor : file_.tensors()) {
      if (wanted_.contains(tensor.name) || ++all > most)
        continue;  // finding the nearest name is expensive, so it is done only for the names shown
      const auto near = nearest(tensor.name, absent);
      problems.push_back(concat("unexpected tensor '", tensor.name, "' ", shape_text(tensor.shape),
                                near ? concat("; did you mean '", *near, "'?") : ""));
    }
    if (all == 0) return std::move(tensors_);
    problems.resize(std::min(problems.size(), most));
    throw InputError(concat(file_.path(), ": the tensors do not match a ",
                            model_.prefix.substr(0, model_.prefix.size() - 1), " model of ", model_.layers, " layers (",
                            all, all == 1 ? " problem):\n  " : " problems):\n  ", join(problems, "\n  "),
                            all > most ? concat("\n  and ", all - most, " more") : ""));
  }

 private:
  /// Returns null, and records the problem, if the tensor is missing or cannot be converted.
  const GgufTensor* find(const std::string& gguf, const Shape& shape) {
    wanted_.insert(gguf);
    const GgufTensor* source = file_.find(gguf);
    if (source == nullptr) {
      missing_.push_back(concat("missing tensor '", gguf, "' ", shape_text(shape)));
      return nullptr;
    }
    const std::size_t before = wrong_.size();
    if (source->shape != shape)
      wrong_.push_back(concat("tensor '", gguf, "' has shape ", shape_text(source->shape),
                              ", but the metadata requires ", shape_text(shape)));
    if (!can_dequantise(source->type))
      wrong_.push_back(concat("tensor '", gguf, "' has type ", ggml_type_info(source->type).name,
                              ", which is not supported; supported are ", join(dequantisable_types())));
    else if (shape.size() == 1 && ggml_type_info(source->type).block_elements != 1)
      wrong_.push_back(concat("tensor '", gguf, "' is a vector of type ", ggml_type_info(source->type).name,
                              ": vectors must not be quantised"));
    return wrong_.size() == before ? source : nullptr;
  }

  const GgufFile& file_;
  const GgufModel& model_;
  std::unordered_set<std::string> wanted_;
  std::vector<std::string> missing_, wrong_;
  std::vector<HfTensor> tensors_;
};

void add_mlp(Plan& plan, const std::string& from, const std::string& to, std::int64_t inner, std::int64_t hidden) {
  plan.add(concat(from, "ffn_gate.weight"), to + "gate_proj.weight", {inner, hidden});
  plan.add(concat(from, "ffn_up.weight"), to + "up_proj.weight", {inner, hidden});
  plan.add(concat(from, "ffn_down.weight"), to + "down_proj.weight", {hidden, inner});
}

/// `from`: "blk.3."; `layer`: "model.layers.3.".
void add_mixture(Plan& plan, const GgufModel& m, const std::string& from, const std::string& layer) {
  const GgufExperts& e = *m.experts;
  const bool mixtral = m.architecture == GgufArchitecture::llama;
  const std::string module = layer + (mixtral ? "block_sparse_moe." : "mlp."), experts = module + "experts.";
  plan.add(from + "ffn_gate_inp.weight", module + "gate.weight", {e.count, m.hidden});
  plan.add_experts(from + "ffn_gate_exps.weight", experts, mixtral ? ".w1.weight" : ".gate_proj.weight",
                   {e.intermediate, m.hidden});
  plan.add_experts(from + "ffn_up_exps.weight", experts, mixtral ? ".w3.weight" : ".up_proj.weight",
                   {e.intermediate, m.hidden});
  plan.add_experts(from + "ffn_down_exps.weight", experts, mixtral ? ".w2.weight" : ".down_proj.weight",
                   {m.hidden, e.intermediate});
  if (e.shared_intermediate == 0) return;
  const std::string shared = module + "shared_expert.";
  plan.add(from + "ffn_gate_shexp.weight", shared + "gate_proj.weight", {e.shared_intermediate, m.hidden});
  plan.add(from + "ffn_up_shexp.weight", shared + "up_proj.weight", {e.shared_intermediate, m.hidden});
  plan.add(from + "ffn_down_shexp.weight", shared + "down_proj.weight", {m.hidden, e.shared_intermediate});
  if (HfTensor* gate = plan.add(from + "ffn_gate_inp_shexp.weight", module + "shared_expert_gate.weight", {m.hidden}))
    gate->shape = {1, m.hidden};
}

void add_attention(Plan& plan, const GgufModel& m, const std::string& from, const std::string& to) {
  const std::int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  plan.add(from + "attn_output.weight", to + "o_proj.weight", {m.hidden, q});
  if (m.architecture == GgufArchitecture::phi3) {
    plan.add(from + "attn_qkv.weight", to + "qkv_proj.weight", {q + 2 * kv, m.hidden});
    return;
  }
  const bool qwen2 = m.architecture == GgufArchitecture::qwen2 || m.architecture == GgufArchitecture::qwen2moe;
  const auto rotation =
      m.architecture == GgufArchitecture::llama ? GgufRearrange::undo_interleaving : GgufRearrange::none;
  plan.add(from + "attn_q.weight", to + "q_proj.weight", {q, m.hidden}, rotation, m.heads);
  plan.add(from + "attn_k.weight", to + "k_proj.weight", {kv, m.hidden}, rotation, m.kv_heads);
  plan.add(from + "attn_v.weight", to + "v_proj.weight", {kv, m.hidden});
  if (m.attention_bias || qwen2) {
    plan.add(from + "attn_q.bias", to + "q_proj.bias", {q}, rotation, m.heads);
    plan.add(from + "attn_k.bias", to + "k_proj.bias", {kv}, rotation, m.kv_heads);
    plan.add(from + "attn_v.bias", to + "v_proj.bias", {kv});
  }
  if (m.attention_bias && !qwen2) plan.add(from + "attn_output.bias", to + "o_proj.bias", {m.hidden});
  const bool olmoe = m.architecture == GgufArchitecture::olmoe;  // normalized over all heads together
  if (olmoe || m.architecture == GgufArchitecture::qwen3 || m.architecture == GgufArchitecture::qwen3moe ||
      m.architecture == GgufArchitecture::gemma3) {
    plan.add_norm(from + "attn_q_norm.weight", to + "q_norm.weight", olmoe ? q : m.head_dim);
    plan.add_norm(from + "attn_k_norm.weight", to + "k_norm.weight", olmoe ? kv : m.head_dim);
  }
}

void add_llama(Plan& plan, const GgufModel& m) {
  plan.add("token_embd.weight", "model.embed_tokens.weight", {m.vocab, m.hidden});
  plan.add_norm("output_norm.weight", "model.norm.weight", m.hidden);
  if (!m.tied) plan.add("output.weight", "lm_head.weight", {m.vocab, m.hidden});
  if (m.architecture == GgufArchitecture::llama) plan.leave_aside("rope_freqs.weight");
  if (m.architecture == GgufArchitecture::phi3)
    for (const char* factors : {"rope_factors_long.weight", "rope_factors_short.weight"}) plan.leave_aside(factors);
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string from = concat("blk.", i, "."), to = concat("model.layers.", i, ".");
    plan.add_norm(from + "attn_norm.weight", to + "input_layernorm.weight", m.hidden);
    if (m.norms_after()) {
      plan.add_norm(from + "post_attention_norm.weight", to + "post_attention_layernorm.weight", m.hidden);
      plan.add_norm(from + "ffn_norm.weight", to + "pre_feedforward_layernorm.weight", m.hidden);
      plan.add_norm(from + "post_ffw_norm.weight", to + "post_feedforward_layernorm.weight", m.hidden);
    } else {
      plan.add_norm(from + "ffn_norm.weight", to + "post_attention_layernorm.weight", m.hidden);
    }
    add_attention(plan, m, from, to + "self_attn.");
    const std::string mlp = to + "mlp.";
    if (m.experts) {
      add_mixture(plan, m, from, to);
      continue;
    }
    if (m.architecture == GgufArchitecture::phi3) {
      plan.add(from + "ffn_up.weight", mlp + "gate_up_proj.weight", {2 * m.intermediate, m.hidden});
      plan.add(from + "ffn_down.weight", mlp + "down_proj.weight", {m.hidden, m.intermediate});
      continue;
    }
    add_mlp(plan, from, mlp, m.intermediate, m.hidden);
    if (m.mlp_bias && m.architecture == GgufArchitecture::llama) {
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
  // Absurd counts would only produce an absurdly long list of missing tensors.
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
