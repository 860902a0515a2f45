#include <tessera/architectures/tensors.h>

#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tessera::architectures {
namespace {

/// Collects tensors under a prefix.
class List {
 public:
  explicit List(const ModelSpec& spec) : m_(spec) {}

  /// Adds the parameters of a torch::nn::Linear, y = x W + b: weight [out, in].
  void linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias, Part part) {
    add(concat(name, ".weight"), {out, in}, part);
    if (bias) add(concat(name, ".bias"), {out}, part);
  }
  /// Adds the same with weight [in, out] (GPT-2's Conv1D).
  void conv(const std::string& name, std::int64_t in, std::int64_t out, Part part) {
    add(concat(name, ".weight"), {in, out}, part);
    add(concat(name, ".bias"), {out}, part);
  }
  void norm(const std::string& name, std::int64_t width, bool bias, Part part = Part::norm) {
    if (m_.norms.weight) add(concat(name, ".weight"), {width}, part);
    if (bias) add(concat(name, ".bias"), {width}, part);
  }
  void add(std::string name, std::vector<std::int64_t> shape, Part part, bool trained = true) {
    all.push_back({.name = std::move(name),
                   .shape = std::move(shape),
                   .part = part,
                   .block = block,
                   .expert = expert,
                   .trained = trained});
  }

  std::vector<Tensor> all;
  std::int64_t block = -1, expert = -1;

 private:
  const ModelSpec& m_;
};

void add_gpt2(List& list, const ModelSpec& m) {
  const std::int64_t c = m.hidden;
  list.add("transformer.wte.weight", {m.vocabulary, c}, Part::embedding);
  list.add("transformer.wpe.weight", {m.positions, c}, Part::embedding);
  for (list.block = 0; list.block < m.layers; ++list.block) {
    const std::string h = concat("transformer.h.", list.block);
    list.norm(h + ".ln_1", c, true);
    list.conv(h + ".attn.c_attn", c, 3 * c, Part::attention);
    list.conv(h + ".attn.c_proj", c, c, Part::attention);
    list.norm(h + ".ln_2", c, true);
    list.conv(h + ".mlp.c_fc", c, m.inner, Part::mlp);
    list.conv(h + ".mlp.c_proj", m.inner, c, Part::mlp);
  }
  list.norm("transformer.ln_f", c, true);
  if (!m.tied) list.add("lm_head.weight", {m.vocabulary, c}, Part::head);
}

void add_latent(List& list, const ModelSpec& m, const std::string& attn) {
  const Latent& l = *m.latent;
  const std::int64_t queries = m.heads * (l.plain + l.rotated);
  if (l.query_rank == 0) {
    list.linear(attn + ".q_proj", queries, m.hidden, false, Part::attention);
  } else {
    list.linear(attn + ".q_a_proj", l.query_rank, m.hidden, m.query_bias, Part::attention);
    if (l.normed) list.norm(attn + ".q_a_layernorm", l.query_rank, false, Part::attention);
    list.linear(attn + ".q_b_proj", queries, l.query_rank, false, Part::attention);
  }
  list.linear(attn + ".kv_a_proj_with_mqa", l.key_rank + l.rotated, m.hidden, m.query_bias, Part::attention);
  if (l.normed) list.norm(attn + ".kv_a_layernorm", l.key_rank, false, Part::attention);
  list.linear(attn + ".kv_b_proj", m.heads * (l.plain + l.value), l.key_rank, false, Part::attention);
  list.linear(attn + ".o_proj", m.hidden, m.heads * l.value, m.output_bias, Part::attention);
}

void add_linear(List& list, const ModelSpec& m, const std::string& attn) {
  const Linear& l = *m.linear;
  list.linear(attn + ".in_proj", l.in_features(), m.hidden, false, Part::attention);
  list.add(attn + ".conv_weight", {l.convolved(), l.kernel}, Part::attention);
  for (const char* name : {".A_log", ".dt_bias"}) list.add(attn + name, {l.value_heads}, Part::attention);
  list.norm(attn + ".norm", l.value_size, m.norms.bias, Part::attention);
  list.linear(attn + ".out_proj", m.hidden, l.values(), false, Part::attention);
}

void add_attention(List& list, const ModelSpec& m, const std::string& attn) {
  if (m.is_linear(list.block)) return add_linear(list, m, attn);
  if (m.latent) return add_latent(list, m, attn);
  const bool wide = m.wide_head_norm;
  const std::int64_t q = m.query_width(), k = m.key_width();
  const auto output = [&] {
    list.linear(concat(attn, ".", m.names.output), m.hidden, q, m.output_bias, Part::attention);
  };
  if (m.packing == Packing::heads) {
    list.linear(attn + ".query_key_value", 3 * q, m.hidden, m.query_bias, Part::attention);
    return output();
  }
  if (m.packing == Packing::blocks) {
    list.linear(attn + ".qkv_proj", q + 2 * k, m.hidden, false, Part::attention);
    return output();
  }
  const auto project = [&](const char* name, std::int64_t width) {
    list.linear(attn + name, width, m.hidden, m.query_bias, Part::attention);
  };
  project(".q_proj", m.output_gate ? 2 * q : q);
  project(".k_proj", k);
  project(".v_proj", k);
  output();
  if (!m.head_norm) return;
  list.norm(concat(attn, ".", m.names.query_norm), wide ? q : m.head_size, m.norms.bias, Part::attention);
  list.norm(concat(attn, ".", m.names.key_norm), wide ? k : m.head_size, m.norms.bias, Part::attention);
}

void add_experts(List& list, const ModelSpec& m, const std::string& mlp) {
  const Experts& e = *m.experts;
  list.add(mlp + ".gate.weight", {e.count, m.hidden}, Part::router);
  if (e.selection_bias) list.add(mlp + ".gate.e_score_correction_bias", {e.count}, Part::router, /*trained=*/false);
  const auto add = [&](const std::string& one, std::int64_t inner, Part part) {
    const auto map = [&](const char* name, std::int64_t out, std::int64_t in) {
      list.linear(concat(one, ".", name), out, in, false, part);
    };
    if (m.gated) map(e.gate_name, inner, m.hidden);
    map(e.up_name, inner, m.hidden);
    map(e.down_name, m.hidden, inner);
  };
  for (list.expert = 0; list.expert < e.count; ++list.expert)
    add(concat(mlp, ".experts.", list.expert), e.inner, Part::expert);
  list.expert = -1;
  if (e.shared_inner > 0) add(concat(mlp, ".", e.shared_name), e.shared_inner, Part::mlp);
  if (e.shared_gate) list.add(mlp + ".shared_expert_gate.weight", {1, m.hidden}, Part::router);
}

void add_mlp(List& list, const ModelSpec& m, const std::string& layer) {
  const std::string mlp = *m.names.mlp ? concat(layer, ".", m.names.mlp) : layer;
  if (m.is_sparse(list.block)) {
    add_experts(list, m, mlp);
  } else if (m.packing == Packing::blocks) {
    list.linear(mlp + ".gate_up_proj", 2 * m.inner, m.hidden, false, Part::mlp);
    list.linear(mlp + ".down_proj", m.hidden, m.inner, false, Part::mlp);
  } else if (m.gated) {
    for (const char* name : {".gate_proj", ".up_proj"})
      list.linear(mlp + name, m.inner, m.hidden, m.mlp_bias, Part::mlp);
    list.linear(mlp + ".down_proj", m.hidden, m.inner, m.mlp_bias, Part::mlp);
  } else {
    list.linear(concat(mlp, ".", m.names.up), m.inner, m.hidden, m.mlp_bias, Part::mlp);
    list.linear(concat(mlp, ".", m.names.down), m.hidden, m.inner, m.mlp_bias, Part::mlp);
  }
}

void add_llama(List& list, const ModelSpec& m) {
  const DecoderNames& names = m.names;
  const std::string model = concat(names.model, ".");
  const auto norm = [&](const std::string& name) { list.norm(name, m.hidden, m.norms.bias); };
  list.add(concat(model, names.embedding, ".weight"), {m.vocabulary, m.hidden}, Part::embedding);
  if (m.position_rows > 0)
    list.add(concat(model, names.positions, ".weight"), {m.position_rows, m.hidden}, Part::embedding);
  const auto block = [&](std::int64_t number) {
    const std::string layer = concat(model, "layers.", number);
    add_attention(list, m, concat(layer, ".", names.attention));
    add_mlp(list, m, layer);
    if (m.norms.before) norm(concat(layer, ".", names.before_attention));
    if (m.norms.after) norm(layer + ".post_attention_layernorm");
    if (m.norms.before && !m.one_norm())
      norm(concat(layer, ".", m.norms.after ? "pre_feedforward_layernorm" : names.before_mlp));
    if (m.norms.after) norm(layer + ".post_feedforward_layernorm");
  };
  for (list.block = 0; list.block < m.layers; ++list.block) block(list.block);
  for (std::int64_t number = m.layers; number < m.layers + m.depths; ++number) {  // they belong to the end part
    block(number);
    const std::string layer = concat(model, "layers.", number);
    for (const char* name : {".enorm", ".hnorm", ".shared_head.norm"}) norm(layer + name);
    list.linear(layer + ".eh_proj", m.hidden, 2 * m.hidden, false, Part::mlp);
  }
  norm(concat(model, names.norm));
  if (m.tied) return;
  list.linear(names.head, m.vocabulary, m.hidden, m.head_bias, Part::head);
}

/// Adds the tower and the projector.
void add_vision(List& list, const ModelSpec& m) {
  const Vision& v = *m.vision;
  const std::string tower = "vision_tower.vision_model.";
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    list.add(tower + name, std::move(shape), Part::tower, /*trained=*/false);
  };
  const auto pair = [&](const std::string& name, std::vector<std::int64_t> shape) {
    add(name + ".bias", {shape.front()});
    add(name + ".weight", std::move(shape));
  };
  add("embeddings.class_embedding", {v.hidden});
  add("embeddings.patch_embedding.weight", {v.hidden, 3, v.patch, v.patch});
  add("embeddings.position_embedding.weight", {1 + v.patches(), v.hidden});
  pair("pre_layrnorm", {v.hidden});
  for (std::int64_t i = 0; i < v.layers; ++i) {
    const std::string layer = concat("encoder.layers.", i);
    for (const char* map : {".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.q_proj", ".self_attn.out_proj"})
      pair(layer + map, {v.hidden, v.hidden});
    pair(layer + ".layer_norm1", {v.hidden});
    pair(layer + ".mlp.fc1", {v.inner, v.hidden});
    pair(layer + ".mlp.fc2", {v.hidden, v.inner});
    pair(layer + ".layer_norm2", {v.hidden});
  }
  pair("post_layernorm", {v.hidden});
  for (std::int64_t i = 0; i < v.projections; ++i) {
    const std::string map = concat("multi_modal_projector.linear_", i + 1);
    list.linear(map, m.hidden, i == 0 ? v.hidden : m.hidden, v.projector_bias, Part::projector);
  }
}

void add_bert(List& list, const ModelSpec& m) {
  const std::int64_t c = m.hidden;
  list.add("bert.embeddings.word_embeddings.weight", {m.vocabulary, c}, Part::embedding);
  list.add("bert.embeddings.position_embeddings.weight", {m.positions, c}, Part::embedding);
  list.add("bert.embeddings.token_type_embeddings.weight", {m.segments, c}, Part::embedding);
  list.norm("bert.embeddings.LayerNorm", c, true);
  for (list.block = 0; list.block < m.layers; ++list.block) {
    const std::string layer = concat("bert.encoder.layer.", list.block);
    for (const char* name : {".attention.self.query", ".attention.self.key", ".attention.self.value"})
      list.linear(layer + name, c, c, true, Part::attention);
    list.linear(layer + ".attention.output.dense", c, c, true, Part::attention);
    list.norm(layer + ".attention.output.LayerNorm", c, true);
    list.linear(layer + ".intermediate.dense", m.inner, c, true, Part::mlp);
    list.linear(layer + ".output.dense", c, m.inner, true, Part::mlp);
    list.norm(layer + ".output.LayerNorm", c, true);
  }
  if (m.labels > 0) {
    list.linear("bert.pooler.dense", c, c, true, Part::head);
    list.linear("classifier", m.labels, c, true, Part::head);
    return;
  }
  list.add("cls.predictions.bias", {m.vocabulary}, Part::head);
  list.linear("cls.predictions.transform.dense", c, c, true, Part::head);
  list.norm("cls.predictions.transform.LayerNorm", c, true, Part::head);
  if (!m.tied) list.add("cls.predictions.decoder.weight", {m.vocabulary, c}, Part::head);
}

/// The name with * for every number: names that a family's plan distinguishes.
std::string without_numbers(const std::string& name) {
  std::string text;
  for (const std::string& step : split(name, '.')) {
    const bool number = !step.empty() && step.find_first_not_of("0123456789") == step.npos;
    text += concat(text.empty() ? "" : ".", number ? "*" : step);
  }
  return text;
}

/// Applies the rule to the tensor.
void cut_by(const layout::TensorRule& rule, Tensor& tensor) {
  using enum layout::TensorStyle;
  const bool matrix = tensor.shape.size() > 1;
  const int outputs = matrix && rule.transposed ? 1 : 0, inputs = rule.transposed ? 0 : 1;
  if (rule.style == colwise || rule.style == embedding_rowwise || (rule.style == colwise_gather_output && matrix))
    tensor.cut = outputs;
  if ((rule.style == rowwise || rule.style == rowwise_split_input) && matrix) tensor.cut = inputs;
  if (tensor.cut < 0) return;
  tensor.heads = rule.heads;
  tensor.block_heads = rule.block_heads;
}

void cut_all(const layout::TensorPlan& plan, std::vector<Tensor>& all) {
  std::map<std::string, const layout::TensorRule*> known;  // by name without numbers
  for (Tensor& tensor : all) {
    const auto [place, fresh] = known.try_emplace(without_numbers(tensor.name), nullptr);
    if (fresh) {
      const auto rule =
          std::ranges::find_if(plan, [&](const auto& r) { return layout::matches(r.pattern, tensor.name); });
      if (rule != plan.end()) place->second = &*rule;
    }
    if (place->second != nullptr) cut_by(*place->second, tensor);
  }
}

}  // namespace

std::string_view part_name(Part part) {
  static constexpr std::string_view names[part_count] = {"embedding", "norm", "attention", "mlp",      "router",
                                                         "expert",    "head", "tower",     "projector"};
  return names[static_cast<std::size_t>(part)];
}

double Tensor::numel() const {
  double n = 1;
  for (const std::int64_t size : shape) n *= static_cast<double>(size);
  return n;
}

std::vector<Tensor> tensors(const ModelSpec& spec) {
  List list(spec);
  if (spec.family == Family::gpt2)
    add_gpt2(list, spec);
  else if (spec.family == Family::bert)
    add_bert(list, spec);
  else
    add_llama(list, spec);
  if (!spec.vision) {
    cut_all(tensor_plan(spec), list.all);
    return std::move(list.all);
  }
  List seeing(spec);
  add_vision(seeing, spec);
  for (Tensor& tensor : list.all) {
    tensor.name = concat("language_model.", tensor.name);
    seeing.all.push_back(std::move(tensor));
  }
  return std::move(seeing.all);
}

double elements_on_rank(const Tensor& tensor, int tp) {
  if (tensor.cut < 0 || tp == 1) return tensor.numel();
  const double along = static_cast<double>(tensor.shape[static_cast<std::size_t>(tensor.cut)]);
  if (!tensor.block_heads.empty()) {
    double all = 0, own = 0;  // heads
    for (const std::int64_t heads : tensor.block_heads) {
      all += static_cast<double>(heads);
      own += std::ceil(static_cast<double>(heads) / static_cast<double>(std::min<std::int64_t>(tp, heads)));
    }
    return tensor.numel() / all * own;
  }
  const double parts = tensor.heads > 0 ? static_cast<double>(std::min<std::int64_t>(tp, tensor.heads)) : tp;
  return tensor.numel() / along * std::ceil(along / parts);
}

std::string embedding_parameter(const ModelSpec& spec) {
  return concat(spec.vision ? "language_model." : "", spec.names.model, ".", spec.names.embedding, ".weight");
}

std::optional<std::int64_t> expert_of(const ModelSpec& spec, const std::string& parameter) {
  constexpr std::string_view list = ".experts.";  // does not match "shared_experts"
  const std::size_t begin = parameter.find(list);
  if (!spec.experts || begin == std::string::npos) return std::nullopt;
  const std::size_t digits = begin + list.size();
  return parse_int(parameter.substr(digits, parameter.find('.', digits) - digits));
}

std::vector<std::string> default_lora_targets(const ModelSpec& spec) {
  if (spec.family == Family::gpt2) return {"c_attn"};
  if (spec.family == Family::bert) return {"query", "value"};
  if (spec.packing == Packing::blocks) return {"qkv_proj"};
  if (spec.packing == Packing::heads) return {"query_key_value"};
  if (!spec.latent) return {"q_proj", "v_proj"};
  return {spec.latent->query_rank == 0 ? "q_proj" : "q_b_proj", "kv_b_proj"};
}

}  // namespace tessera::architectures
