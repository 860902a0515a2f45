#include <tessera/plan/model.h>

#include <tessera/base/text.h>
#include <tessera/plan/adapters.h>
#include <tessera/plan/recorded.h>

#include <algorithm>
#include <cmath>

namespace tessera::plan {
namespace {

/// Adds tensors under a prefix.
class List {
 public:
  explicit List(const Model& model) : m_(model) {}

  /// y = x W + b of torch::nn::Linear, weight [out, in]; `cut`: 0 its outputs, 1 its inputs are divided, -1 neither.
  void linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias, Part part, int cut,
              std::int64_t heads = 0) {
    add(concat(name, ".weight"), {out, in}, part, cut, heads);
    if (bias) add(concat(name, ".bias"), {out}, part, cut == 0 ? 0 : -1, heads);
  }
  /// The same with weight [in, out] (GPT-2's Conv1D).
  void conv(const std::string& name, std::int64_t in, std::int64_t out, Part part, int cut) {
    add(concat(name, ".weight"), {in, out}, part, cut);
    add(concat(name, ".bias"), {out}, part, cut == 1 ? 0 : -1);
  }
  void norm(const std::string& name, std::int64_t width, bool bias, Part part = Part::norm) {
    if (m_.norms.weight) add(concat(name, ".weight"), {width}, part, -1);
    if (bias) add(concat(name, ".bias"), {width}, part, -1);
  }
  void gated(const std::string& name, std::int64_t inner, bool bias, Part part, const char* gate = "gate_proj",
             const char* up = "up_proj", const char* down = "down_proj") {
    linear(concat(name, ".", gate), inner, m_.hidden, bias, part, 0);
    linear(concat(name, ".", up), inner, m_.hidden, bias, part, 0);
    linear(concat(name, ".", down), m_.hidden, inner, bias, part, 1);
  }
  void add(std::string name, std::vector<std::int64_t> shape, Part part, int cut, std::int64_t heads = 0,
           bool trained = true) {
    all.push_back({std::move(name), std::move(shape), part, block, expert, cut, heads, trained, 0, {}});
  }

  std::vector<Tensor> all;
  std::int64_t block = -1, expert = -1;

 private:
  const Model& m_;
};

void add_gpt2(List& list, const Model& m) {
  const std::int64_t c = m.hidden;
  list.add("transformer.wte.weight", {m.vocabulary, c}, Part::embedding, 0);
  list.add("transformer.wpe.weight", {m.positions, c}, Part::embedding, -1);
  for (list.block = 0; list.block < m.layers; ++list.block) {
    const std::string h = concat("transformer.h.", list.block);
    list.norm(h + ".ln_1", c, true);
    list.conv(h + ".attn.c_attn", c, 3 * c, Part::attention, 1);
    list.conv(h + ".attn.c_proj", c, c, Part::attention, 0);
    list.norm(h + ".ln_2", c, true);
    list.conv(h + ".mlp.c_fc", c, m.inner, Part::mlp, 1);
    list.conv(h + ".mlp.c_proj", m.inner, c, Part::mlp, 0);
  }
  list.norm("transformer.ln_f", c, true);
  if (!m.tied) list.add("lm_head.weight", {m.vocabulary, c}, Part::head, 0);
}

void add_latent(List& list, const Model& m, const std::string& attn) {
  const Latent& l = *m.latent;
  const std::int64_t queries = m.heads * (l.plain + l.rotated);
  if (l.query_rank == 0) {
    list.linear(attn + ".q_proj", queries, m.hidden, false, Part::attention, 0);
  } else {
    list.linear(attn + ".q_a_proj", l.query_rank, m.hidden, m.query_bias, Part::attention, 0);
    if (m.query_bias) list.all.back().cut = -1;  // outputs are gathered, so the bias is whole
    if (l.normed) list.norm(attn + ".q_a_layernorm", l.query_rank, false, Part::attention);
    list.linear(attn + ".q_b_proj", queries, l.query_rank, false, Part::attention, 0);
  }
  list.linear(attn + ".kv_a_proj_with_mqa", l.key_rank + l.rotated, m.hidden, m.query_bias, Part::attention, 0);
  if (m.query_bias) list.all.back().cut = -1;
  if (l.normed) list.norm(attn + ".kv_a_layernorm", l.key_rank, false, Part::attention);
  list.linear(attn + ".kv_b_proj", m.heads * (l.plain + l.value), l.key_rank, false, Part::attention, 0);
  list.linear(attn + ".o_proj", m.hidden, m.heads * l.value, m.output_bias, Part::attention, 1);
}

void add_linear(List& list, const Model& m, const std::string& attn) {
  const Linear& l = *m.linear;
  list.linear(attn + ".in_proj", l.in_features(), m.hidden, false, Part::attention, 0);
  list.add(attn + ".conv_weight", {l.convolved(), l.kernel}, Part::attention, -1);
  for (const char* name : {".A_log", ".dt_bias"}) list.add(attn + name, {l.value_heads}, Part::attention, -1);
  list.norm(attn + ".norm", l.value_size, m.norms.bias, Part::attention);
  list.linear(attn + ".out_proj", m.hidden, l.values(), false, Part::attention, 1);
}

void add_attention(List& list, const Model& m, const std::string& attn) {
  if (m.is_linear(list.block)) return add_linear(list, m, attn);
  if (m.latent) return add_latent(list, m, attn);
  const bool wide = m.wide_head_norm;  // then every rank computes all heads, and outputs are gathered
  const std::int64_t q = m.query_width(), k = m.key_width();
  const auto output = [&] {
    list.linear(concat(attn, ".", m.names.output), m.hidden, q, m.output_bias, Part::attention, 1);
  };
  if (m.packing == Packing::heads) {
    list.linear(attn + ".query_key_value", 3 * q, m.hidden, m.query_bias, Part::attention, 0, m.heads);
    return output();
  }
  if (m.packing == Packing::blocks) {
    list.linear(attn + ".qkv_proj", q + 2 * k, m.hidden, false, Part::attention, 0);
    list.all.back().block_heads = {m.heads, m.key_heads, m.key_heads};
    return output();
  }
  const auto project = [&](const char* name, std::int64_t width, std::int64_t heads) {
    list.linear(attn + name, width, m.hidden, m.query_bias, Part::attention, 0, wide ? 0 : heads);
    if (wide && m.query_bias) list.all.back().cut = -1;
  };
  project(".q_proj", m.output_gate ? 2 * q : q, m.heads);
  project(".k_proj", k, m.key_heads);
  project(".v_proj", k, m.key_heads);
  output();
  if (!m.head_norm) return;
  list.norm(concat(attn, ".", m.names.query_norm), wide ? q : m.head_size, m.norms.bias, Part::attention);
  list.norm(concat(attn, ".", m.names.key_norm), wide ? k : m.head_size, m.norms.bias, Part::attention);
}

void add_experts(List& list, const Model& m, const std::string& mlp) {
  const Experts& e = *m.experts;
  const bool mixtral = m.type == "mixtral";
  list.add(mlp + ".gate.weight", {e.count, m.hidden}, Part::router, -1);
  if (e.selection_bias)
    list.add(mlp + ".gate.e_score_correction_bias", {e.count}, Part::router, -1, 0, /*trained=*/false);
  const auto add = [&](const std::string& one, std::int64_t inner, Part part) {
    if (mixtral) return list.gated(one, inner, false, part, "w1", "w3", "w2");
    if (m.gated) return list.gated(one, inner, false, part);
    list.linear(one + ".up_proj", inner, m.hidden, false, part, 0);
    list.linear(one + ".down_proj", m.hidden, inner, false, part, 1);
  };
  for (list.expert = 0; list.expert < e.count; ++list.expert)
    add(concat(mlp, ".experts.", list.expert), e.inner, Part::expert);
  list.expert = -1;
  if (e.shared_inner > 0)
    add(mlp + (m.type == "deepseek_v3" ? ".shared_experts" : ".shared_expert"), e.shared_inner, Part::mlp);
  if (e.shared_gate) list.add(mlp + ".shared_expert_gate.weight", {1, m.hidden}, Part::router, -1);
}

void add_mlp(List& list, const Model& m, const std::string& layer) {
  const std::string mlp = *m.names.mlp ? concat(layer, ".", m.names.mlp) : layer;
  if (m.is_sparse(list.block)) {
    add_experts(list, m, mlp);
  } else if (m.packing == Packing::blocks) {
    list.linear(mlp + ".gate_up_proj", 2 * m.inner, m.hidden, false, Part::mlp, 0);
    list.linear(mlp + ".down_proj", m.hidden, m.inner, false, Part::mlp, 1);
  } else if (m.gated) {
    list.gated(mlp, m.inner, m.mlp_bias, Part::mlp);
  } else {
    list.linear(concat(mlp, ".", m.names.up), m.inner, m.hidden, m.mlp_bias, Part::mlp, 0);
    list.linear(concat(mlp, ".", m.names.down), m.hidden, m.inner, m.mlp_bias, Part::mlp, 1);
  }
}

void add_llama(List& list, const Model& m) {
  const layout::DecoderNames& names = m.names;
  const std::string model = concat(names.model, ".");
  const auto norm = [&](const std::string& name) { list.norm(name, m.hidden, m.norms.bias); };
  list.add(concat(model, names.embedding, ".weight"), {m.vocabulary, m.hidden}, Part::embedding, 0);
  if (m.position_rows > 0)
    list.add(concat(model, names.positions, ".weight"), {m.position_rows, m.hidden}, Part::embedding, -1);
  const auto block = [&](std::int64_t number) {
    const std::string layer = concat(model, "layers.", number);
    add_attention(list, m, concat(layer, ".", names.attention));
    add_mlp(list, m, layer);
    if (m.norms.before) norm(concat(layer, ".", names.before_attention));
    if (m.norms.after) norm(layer + ".post_attention_layernorm");
    if (m.norms.before && !m.norms.shared)
      norm(concat(layer, ".", m.norms.after ? "pre_feedforward_layernorm" : names.before_mlp));
    if (m.norms.after) norm(layer + ".post_feedforward_layernorm");
  };
  for (list.block = 0; list.block < m.layers; ++list.block) block(list.block);
  for (std::int64_t number = m.layers; number < m.layers + m.depths; ++number) {  // they lie at the end
    block(number);
    const std::string layer = concat(model, "layers.", number);
    for (const char* name : {".enorm", ".hnorm", ".shared_head.norm"}) norm(layer + name);
    list.linear(layer + ".eh_proj", m.hidden, 2 * m.hidden, false, Part::mlp, -1);
  }
  norm(concat(model, names.norm));
  if (m.tied) return;
  list.linear(names.head, m.vocabulary, m.hidden, m.head_bias, Part::head, 0);
  if (m.head_bias) list.all.back().cut = -1;  // every rank has it whole
}

/// The tower and the projector; nothing of them is cut.
void add_vision(List& list, const Model& m) {
  const Vision& v = *m.vision;
  const std::string tower = "vision_tower.vision_model.";
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    list.add(tower + name, std::move(shape), Part::tower, -1, 0, /*trained=*/false);
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
    list.add(map + ".weight", {m.hidden, i == 0 ? v.hidden : m.hidden}, Part::projector, -1, 0, v.projector_trained);
    if (v.projector_bias) list.add(map + ".bias", {m.hidden}, Part::projector, -1, 0, v.projector_trained);
  }
}

void add_bert(List& list, const Model& m) {
  const std::int64_t c = m.hidden;
  list.add("bert.embeddings.word_embeddings.weight", {m.vocabulary, c}, Part::embedding, 0);
  list.add("bert.embeddings.position_embeddings.weight", {m.positions, c}, Part::embedding, -1);
  list.add("bert.embeddings.token_type_embeddings.weight", {m.segments, c}, Part::embedding, -1);
  list.norm("bert.embeddings.LayerNorm", c, true);
  for (list.block = 0; list.block < m.layers; ++list.block) {
    const std::string layer = concat("bert.encoder.layer.", list.block);
    for (const char* name : {".attention.self.query", ".attention.self.key", ".attention.self.value"})
      list.linear(layer + name, c, c, true, Part::attention, 0, m.heads);
    list.linear(layer + ".attention.output.dense", c, c, true, Part::attention, 1);
    list.norm(layer + ".attention.output.LayerNorm", c, true);
    list.linear(layer + ".intermediate.dense", m.inner, c, true, Part::mlp, 0);
    list.linear(layer + ".output.dense", c, m.inner, true, Part::mlp, 1);
    list.norm(layer + ".output.LayerNorm", c, true);
  }
  if (m.labels > 0) {
    list.linear("bert.pooler.dense", c, c, true, Part::head, -1);
    list.linear("classifier", m.labels, c, true, Part::head, -1);
    return;
  }
  list.add("cls.predictions.bias", {m.vocabulary}, Part::head, -1);
  list.linear("cls.predictions.transform.dense", c, c, true, Part::head, -1);
  list.norm("cls.predictions.transform.LayerNorm", c, true, Part::head);
  if (!m.tied) list.add("cls.predictions.decoder.weight", {m.vocabulary, c}, Part::head, 0);
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

namespace {

/// One tensor for each layer: of a recorded module only the elements of layers are known.
std::vector<Tensor> tensors_of(const RecordedStep& step) {
  std::vector<Tensor> all;
  const auto add = [&](const RecordedLayer& layer, std::int64_t block) {
    if (layer.parameters > 0)
      all.push_back({.name = layer.name, .shape = {static_cast<std::int64_t>(layer.parameters)}, .block = block});
  };
  add(step.begin, -1);
  for (std::size_t i = 0; i < step.layers.size(); ++i) add(step.layers[i], static_cast<std::int64_t>(i));
  add(step.end, static_cast<std::int64_t>(step.layers.size()));
  return all;
}

}  // namespace

std::vector<Tensor> tensors(const Model& model) {
  if (model.recorded) return tensors_of(*model.recorded);
  List list(model);
  if (model.family == Family::gpt2)
    add_gpt2(list, model);
  else if (model.family == Family::bert)
    add_bert(list, model);
  else
    add_llama(list, model);
  if (!model.vision) {
    add_adapters(model, list.all);
    return std::move(list.all);
  }
  List seeing(model);
  add_vision(seeing, model);
  for (Tensor& tensor : list.all) {
    tensor.name = concat("language_model.", tensor.name);
    tensor.trained = tensor.trained && model.trained;
    seeing.all.push_back(std::move(tensor));
  }
  add_adapters(model, seeing.all);
  return std::move(seeing.all);
}

double elements_on_rank(const Tensor& tensor, int tp) {
  if (tensor.cut < 0 || tp == 1) return tensor.numel();
  const double along = static_cast<double>(tensor.shape[static_cast<std::size_t>(tensor.cut)]);
  if (!tensor.block_heads.empty()) {
    double all = 0, own = 0;  // heads
    for (const std::int64_t heads : tensor.block_heads) {
      all += real(heads);
      own += std::ceil(real(heads) / static_cast<double>(std::min<std::int64_t>(tp, heads)));
    }
    return tensor.numel() / all * own;
  }
  const double parts = tensor.heads > 0 ? static_cast<double>(std::min<std::int64_t>(tp, tensor.heads)) : tp;
  return tensor.numel() / along * std::ceil(along / parts);
}

namespace {

/// Counted from sizes, not from tensors(): a search asks often, and a layer may have hundreds of experts.
LayerMatrices layer_matrices(const Model& m, bool sparse, bool linear) {
  const double c = real(m.hidden), q = real(m.query_width()), k = real(m.key_width());
  double attention = (m.output_gate ? 3 : 2) * c * q + 2 * c * k;
  if (m.latent) {
    const Latent& l = *m.latent;
    const double queries = real(m.heads * (l.plain + l.rotated));
    attention = (l.query_rank > 0 ? real(l.query_rank) * (c + queries) : c * queries) +
                c * real(l.key_rank + l.rotated) + real(l.key_rank) * real(m.heads) * real(l.plain + l.value) +
                real(m.heads * l.value) * c;
  }
  if (linear) {
    const Linear& l = *m.linear;
    attention = c * real(l.in_features() + l.values()) + 3 * real(l.value_heads * l.key_size * l.value_size);
  }
  const double matrices = m.gated ? 3 : 2;
  if (!sparse) return {attention, matrices * c * real(m.inner)};
  const Experts& e = *m.experts;
  return {attention,
          matrices * c * real(e.top_k * e.inner + e.shared_inner) + c * real(e.count + (e.shared_gate ? 1 : 0))};
}

/// Tokens within reach of a layer's attention; memories of linear attention are counted with the matrices.
double reach_of(const Model& m, std::int64_t layer, double row_tokens) {
  if (m.is_linear(layer)) return 0;
  const double window = m.windows.empty() ? 0 : real(m.windows[static_cast<std::size_t>(layer)]);
  return window > 0 ? std::min(window, row_tokens) : row_tokens;
}

}  // namespace

double score_width(const Model& m, int tp) {
  if (!m.latent) return real(m.query_width()) / tp;
  return real(m.heads) * real(m.latent->plain + m.latent->rotated + m.latent->value) / 2;
}

LayerMatrices matrices_of_layer(const Model& m, std::int64_t layer) {
  return layer_matrices(m, m.is_sparse(layer), m.is_linear(layer));
}

layout::schedule::BlockFlops block_flops(const Model& m, std::int64_t layer, double row_tokens) {
  const LayerMatrices matrices = matrices_of_layer(m, layer);
  return {2 * matrices.attention, 4 * score_width(m) * reach_of(m, layer, row_tokens), 2 * matrices.mlp};
}

double depth_end_elements(const Model& m) {
  const double c = real(m.hidden), norm = (m.norms.weight ? c : 0) + (m.norms.bias ? c : 0);
  return 2 * c * c + 3 * norm;
}

double parameter_count(const Model& model) {
  double n = 0;
  for (const Tensor& tensor : tensors(model)) n += tensor.numel();
  return n;
}

double active_parameters(const Model& m) {
  if (m.recorded) return m.recorded->parameters();
  // BERT's head sees masked tokens only, a few in a hundred: the models' own count leaves it out, too.
  double n = m.family == Family::bert ? 0 : static_cast<double>(m.vocabulary * m.hidden);
  for (std::int64_t i = 0; i < m.layers + m.computed_depths(); ++i) n += matrices_of_layer(m, i).all();
  // A depth passes the head again, and a map of two widths to one.
  return n + real(m.computed_depths()) * (real(m.vocabulary * m.hidden) + 2 * real(m.hidden * m.hidden));
}

double model_flops_per_token(const Model& m, double sequence, bool half) {
  if (m.recorded) return m.recorded->flop() / real(m.recorded->rows) / real(m.recorded->row_tokens);
  double seen = 0;  // tokens within reach, summed over layers
  for (std::int64_t i = 0; i < m.layers + m.computed_depths(); ++i) {
    const double reach = reach_of(m, i, sequence);
    seen += half && m.causal ? reach - reach * reach / (2 * sequence) : reach;
  }
  const double all = 6 * active_parameters(m) + 12 * score_width(m) * seen;
  if (!m.adapters) return all;
  // As a run counts (models/lora.h): nobody forms the gradients of weights that are frozen.
  double adapters = 0, whole = 0;
  for (const Tensor& tensor : tensors(m)) {
    if (!tensor.trained || tensor.shape.size() != 2) continue;
    const bool adapter = tensor.name.find(".lora_") != std::string::npos;
    if (adapter || tensor.part != Part::embedding) (adapter ? adapters : whole) += tensor.numel();
  }
  return all - 2 * (active_parameters(m) - whole) + 6 * adapters;
}

}  // namespace tessera::plan
