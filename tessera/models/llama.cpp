#include <tessera/models/llama.h>

#include <tessera/base/error.h>
#include <tessera/models/decoders/gpt_neox.h>
#include <tessera/models/decoders/linear_attention.h>
#include <tessera/models/decoders/phi3.h>
#include <tessera/models/kept_parts.h>
#include <tessera/models/latent_attention.h>
#include <tessera/models/moe_mlp.h>
#include <tessera/models/rope.h>
#include <tessera/nn/device/send.h>
#include <tessera/nn/nn.h>

#include <algorithm>
#include <cmath>

namespace tessera::models {
using architectures::DecoderNames, architectures::LayerRope, architectures::Residual, architectures::Rope;
namespace {

ModelPart part(ModelPart::Kind kind, std::int64_t block) {
  static constexpr std::string_view ends[] = {"", ".self_attn", ".mlp"};
  return {kind, block, concat("model.layers.", block, ends[static_cast<std::size_t>(kind)])};
}
ModelPart mixtral_part(ModelPart::Kind kind, std::int64_t block) {
  if (kind != ModelPart::Kind::mlp) return part(kind, block);
  return {kind, block, concat("model.layers.", block, ".block_sparse_moe")};
}
ModelPart neox_part(ModelPart::Kind kind, std::int64_t block) {
  static constexpr std::string_view ends[] = {"", ".attention", ".mlp"};
  return {kind, block, concat("gpt_neox.layers.", block, ends[static_cast<std::size_t>(kind)])};
}
/// The MLP of OPT consists of two modules of the block; the part has the first one's name.
ModelPart opt_part(ModelPart::Kind kind, std::int64_t block) {
  static constexpr std::string_view ends[] = {"", ".self_attn", ".fc1"};
  return {kind, block, concat("model.decoder.layers.", block, ends[static_cast<std::size_t>(kind)])};
}
/// Returns the function that names the parts of a model with these module names.
ModelPart (*part_of(const DecoderNames& names))(ModelPart::Kind kind, std::int64_t block) {
  if (names.model == std::string_view("gpt_neox")) return neox_part;
  if (names.model == std::string_view("model.decoder")) return opt_part;
  return names.mlp == std::string_view("mlp") ? part : mixtral_part;
}

/// Normalizes q or k over all heads at once, and clips the result.
at::Tensor normed_whole(const at::Tensor& x, const std::shared_ptr<Norm>& norm, double clip) {
  const at::Tensor y = norm ? norm->forward(x) : x;
  return clip > 0 ? y.clamp(-clip, clip) : y;
}

/// Rotates the first numbers of each head, as many as the table covers.
at::Tensor rotated(const at::Tensor& x, const nn::RotaryTable& table, bool interleaved) {
  const std::int64_t turned = 2 * table.cos.size(-1);
  // Our rotation needs first halves, then second halves; scores do not depend on the order of a head's numbers.
  if (interleaved) return rotated(x.unflatten(3, {turned / 2, 2}).transpose(3, 4).flatten(3), table, false);
  if (turned == x.size(3)) return nn::rotary(x, table);
  return at::cat({nn::rotary(x.slice(3, 0, turned), table), x.slice(3, turned)}, 3);
}

}  // namespace

CausalHeads::CausalHeads(const ModelSpec& c, std::int64_t index)
    : index(index),
      size(c.head_size),
      window(c.window(index)),
      scale(c.score_scale),
      softcap(c.caps.scores),
      dropout(c.attention_dropout),
      rotation(c.rotation(index)),
      interleaved(c.interleaved) {}

at::Tensor CausalHeads::mixed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const LlamaContext& context, std::int64_t first_head, bool training) const {
  const nn::RotaryTable& table = rotation == LayerRope::local ? context.local_rotary : context.rotary;
  const auto turned = [&](const at::Tensor& x) {
    return rotation == LayerRope::none ? x : rotated(x, table, interleaved);
  };
  const at::Tensor queries = turned(q), keys = turned(k);
  const nn::AttentionOptions options{.scale = scale,
                                     .softcap = softcap,
                                     .window = window,
                                     .dropout = training ? dropout : 0,
                                     .random = context.of_weights(index, first_head)};
  if (!context.cache) return context.attend(queries, keys, v, options);
  const auto [all_keys, all_values] =
      context.cache->append(static_cast<std::size_t>(index), keys.transpose(1, 2), v.transpose(1, 2));
  return nn::cached_attention(queries, all_keys, all_values, options);
}

LlamaAttention::LlamaAttention(const ModelSpec& c, std::int64_t index)
    : heads(c, index), clip(c.clip_qkv), gated(c.output_gate) {
  const std::int64_t queries = c.heads * c.head_size, keys = c.key_heads * c.head_size;
  q_proj = register_module("q_proj", std::make_shared<Linear>(c.hidden, gated ? 2 * queries : queries, c.query_bias));
  k_proj = register_module("k_proj", std::make_shared<Linear>(c.hidden, keys, c.query_bias));
  v_proj = register_module("v_proj", std::make_shared<Linear>(c.hidden, keys, c.query_bias));
  o_proj = register_module(c.names.output, std::make_shared<Linear>(queries, c.hidden, c.output_bias));
  if (!c.head_norm) return;
  const bool wide = c.wide_head_norm;
  q_norm = register_module(c.names.query_norm, make_norm(c.norms, wide ? queries : c.head_size));
  k_norm = register_module(c.names.key_norm, make_norm(c.norms, wide ? keys : c.head_size));
}

at::Tensor LlamaAttention::forward(const at::Tensor& x, const LlamaContext& context) {
  // [B, T, H, D], [B, T, K, D]: the heads and tokens that the projections return (they may be cut over ranks).
  const auto split = [&](const at::Tensor& y) { return y.view({y.size(0), y.size(1), -1, heads.size}); };
  const nn::RandomPlace place = context.between_layers();
  const bool whole = q_norm && q_norm->weight.size(0) != heads.size;
  const auto projected = [&](Linear& map, const std::shared_ptr<Norm>& norm) {
    const at::Tensor y = map.forward(x, place);
    return split(whole || clip > 0 ? normed_whole(y, whole ? norm : nullptr, clip) : y);
  };
  at::Tensor q = projected(*q_proj, q_norm), k = projected(*k_proj, k_norm), gate;
  if (gated) {
    const at::Tensor both = q.flatten(2).unflatten(2, {-1, 2 * heads.size});
    q = both.slice(3, 0, heads.size).contiguous();
    gate = both.slice(3, heads.size).flatten(2);
  }
  const at::Tensor v = projected(*v_proj, nullptr);
  if (q_norm && !whole) {
    q = q_norm->forward(q);
    k = k_norm->forward(k);
  }
  const std::int64_t first_head = nn::first_own(q_proj->weight, 0) / (gated ? 2 * heads.size : heads.size);
  const at::Tensor read = heads.mixed(q, k, v, context, first_head, is_training());
  return o_proj->forward(gated ? read * gate.sigmoid() : read, context.random);
}

LlamaDecoderLayer::LlamaDecoderLayer(const ModelSpec& c, std::int64_t index)
    : index(index),
      residual_factor(c.multipliers.residual),
      drops(c.drops),
      residual(c.residual),
      attention_reader(c.is_linear(index) ? nn::NormReaders::any : nn::NormReaders::linear_maps),
      mlp_reader(c.is_sparse(index) ? nn::NormReaders::any : nn::NormReaders::linear_maps),
      part(part_of(c.names)) {
  const auto attention = [&]<class Kind>(std::shared_ptr<Kind> made) {
    self_attn = register_module(c.names.attention, std::move(made));
  };
  if (c.is_linear(index))
    attention(std::make_shared<LinearAttention>(c, index));
  else if (c.latent)
    attention(std::make_shared<LatentAttention>(c, index));
  else if (c.packing == architectures::Packing::blocks)
    attention(std::make_shared<PackedAttention>(c, index));
  else if (c.packing == architectures::Packing::heads)
    attention(std::make_shared<NeoxAttention>(c, index));
  else
    attention(std::make_shared<LlamaAttention>(c, index));
  const auto transform = [&]<class Kind>(std::shared_ptr<Kind> made) {
    mlp = register_module(c.names.mlp, std::move(made));
  };
  const auto plain = [&] {
    const DecoderNames& names = c.names;
    const auto made =
        std::make_shared<PlainMlp>(c.hidden, c.inner, c.mlp_bias, activation_of(c.activation), names.up, names.down);
    if (*names.mlp) return transform(made);
    register_module(names.up, made->up);
    register_module(names.down, made->down);
    mlp = made;
  };
  if (c.is_sparse(index))
    transform(std::make_shared<MoeMlp>(c, index));
  else if (c.packing == architectures::Packing::blocks)
    transform(std::make_shared<PackedMlp>(c.hidden, c.inner, gate_of(c.gate)));
  else if (!c.gated)
    plain();
  else
    transform(std::make_shared<GatedMlp>(c.hidden, c.inner, c.mlp_bias, gate_of(c.gate)));
  const auto norm = [&](const char* name) { return register_module(name, make_norm(c.norms, c.hidden)); };
  const NormForm& form = c.norms;
  if (form.before) before_attention = norm(c.names.before_attention);
  if (form.after) after_attention = norm("post_attention_layernorm");
  if (form.before && !c.one_norm()) before_mlp = norm(form.after ? "pre_feedforward_layernorm" : c.names.before_mlp);
  if (form.after) after_mlp = norm("post_feedforward_layernorm");
  if (index < c.layers) return;
  ends = std::make_shared<PredictionEnds>(c.norms, c.hidden);
  register_module("enorm", ends->of_embedding);
  register_module("hnorm", ends->of_hidden);
  register_module("eh_proj", ends->projection);
  register_module("shared_head", ends->head);
}

at::Tensor LlamaDecoderLayer::branch(const at::Tensor& y, const std::shared_ptr<Norm>& after,
                                     const LlamaContext& context, ForwardContext::Draw draw, double dropped) const {
  at::Tensor delta = after ? after->forward(y) : y;
  if (residual_factor != 1) delta = delta * residual_factor;
  if (!is_training() || dropped == 0) return delta;
  return nn::dropout(delta, dropped, context.between_layers(draw, index));
}

at::Tensor LlamaDecoderLayer::forward(const at::Tensor& x, const std::shared_ptr<const LlamaContext>& context) {
  const auto attend = [attn = self_attn, context](const at::Tensor& h) { return attn->forward(h, *context); };
  const auto transform = [mlp = mlp, context](const at::Tensor& h) { return mlp->forward(h, *context); };
  const auto attended = [&](const at::Tensor& h) {
    return branch(context->run(part, ModelPart::Kind::attention, index, attend, h), after_attention, *context,
                  ForwardContext::Draw::attention, drops.attention);
  };
  const auto transformed = [&](const at::Tensor& h) {
    return branch(context->run(part, ModelPart::Kind::mlp, index, transform, h), after_mlp, *context,
                  ForwardContext::Draw::mlp, drops.mlp);
  };
  nn::ResidualNorm second;
  const auto ended = [&] { return nn::add_bias(second.sum, transformed(second.normed), {}); };
  if (!context->runs_attention(index)) {
    second = before_mlp ? before_mlp->add(x, {}, mlp_reader) : nn::ResidualNorm{x, x};
    return ended();
  }
  const bool shared = residual != Residual::serial && !before_mlp;  // one norm for both
  const nn::NormReaders readers = shared ? std::min(attention_reader, mlp_reader) : attention_reader;
  const nn::ResidualNorm first = before_attention ? before_attention->add(x, {}, readers) : nn::ResidualNorm{x, x};
  if (residual != Residual::serial) {
    const at::Tensor both =
        attended(first.normed) + transformed(before_mlp ? before_mlp->forward(first.sum) : first.normed);
    return nn::add_bias(first.sum, both, {});
  }
  const at::Tensor attention = attended(first.normed);
  if (!context->runs_mlp(index)) return nn::add_bias(first.sum, attention, {});
  if (before_mlp)
    second = before_mlp->add(first.sum, attention, mlp_reader);
  else
    second.sum = second.normed = nn::add_bias(first.sum, attention, {});
  return ended();
}

void LlamaDecoderLayer::drop_attention() {
  unregister(*this, {self_attn, before_attention, after_attention});
  self_attn = nullptr;
  before_attention = after_attention = nullptr;
}

void LlamaDecoderLayer::drop_mlp() {
  std::vector<std::shared_ptr<torch::nn::Module>> members = mlp->children();  // OPT registers these in the block
  members.insert(members.end(), {mlp, before_mlp, after_mlp});
  unregister(*this, members);
  mlp = nullptr;
  before_mlp = after_mlp = nullptr;
}

LlamaModel::LlamaModel(const ModelSpec& c)
    : rope(c.rope),
      local_rope(c.local_rope),
      multipliers(c.multipliers),
      dropout(c.drops.embedding),
      position_offset(c.position_offset),
      names(c.names) {
  embed_tokens = register_module(names.embedding, std::make_shared<Table>(c.vocabulary, c.hidden));
  if (c.position_rows > 0)
    embed_positions = register_module(names.positions, std::make_shared<Table>(c.position_rows, c.hidden));
  const auto list = register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < c.layers; ++i)
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<LlamaDecoderLayer>(c, i)));
  for (std::int64_t i = c.layers; i < c.layers + c.depths; ++i)
    depths.push_back(list->register_module(std::to_string(i), std::make_shared<LlamaDecoderLayer>(c, i)));
  norm = register_module(names.norm, make_norm(c.norms, c.hidden));
}

at::Tensor LlamaModel::forward(const at::Tensor& ids, ForwardContext given) {
  const auto made = std::make_shared<LlamaContext>(LlamaContext{std::move(given)});
  const nn::DocumentStarts& documents = made->documents;
  KvCache* const cache = made->cache;
  const std::int64_t b = ids.size(0), t = ids.size(1), past = cache ? cache->tokens() : 0;
  const data::SequencePart* const part_of_rows = made->part.get();
  const at::Tensor positions = part_of_rows        ? part_of_rows->positions
                               : documents.empty() ? at::arange(past, past + t, at::kLong)
                                                   : nn::document_positions(documents, b, t);
  const std::int64_t longest = part_of_rows        ? part_of_rows->longest
                               : documents.empty() ? past + t
                                                   : positions.max().item<std::int64_t>() + 1;
  const auto table_of = [&](const Rope& r) {
    const nn::RotaryTable table = nn::rotary_table(positions, inverse_frequencies(r, longest), r.attention_factor);
    return nn::RotaryTable{nn::send(table.cos, ids.device()), nn::send(table.sin, ids.device())};
  };
  made->rotary = table_of(rope);
  if (local_rope) made->local_rotary = table_of(*local_rope);

  at::Tensor x = std::move(made->input);  // [B, T, C]
  if (made->begins()) {
    x = embedded(ids, positions, *made);
    made->features = at::Tensor();  // otherwise recomputed parts would keep it
    if (is_training() && dropout > 0) {
      made->first_token = nn::first_own_token(embed_tokens->weight, t);
      x = nn::dropout(x, dropout, made->between_layers(ForwardContext::Draw::embedding));
    }
  }
  const std::shared_ptr<const LlamaContext> context = made;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!context->runs(static_cast<std::int64_t>(i))) continue;
    const auto& layer = layers[i];
    const bool attends = context->runs_attention(layer->index);
    const at::Tensor& cut = attends ? layer->self_attn->first_weight() : layer->mlp->first_weight();
    if (!context->begins() && context->stage->first_block == layer->index) nn::begin_with(cut, x);
    made->first_token = nn::first_own_token(cut, t);
    const auto transform = [layer, context](const at::Tensor& y) { return layer->forward(y, context); };
    x = context->run(layer->part, ModelPart::Kind::block, layer->index, transform, x);
  }
  if (!context->ends()) return x;
  x = norm->forward(x);
  if (context->predictions != nullptr) predict(x, *context);
  return multipliers.logits == 1 ? x : x * multipliers.logits;  // the head is linear
}

at::Tensor LlamaModel::embedded(const at::Tensor& ids, const at::Tensor& positions, const LlamaContext& context) const {
  const at::Tensor& table = embed_tokens->weight;
  const at::Tensor words = embed_tokens->rows();
  at::Tensor x = embed_positions ? nn::embed_at(ids, words, embed_positions->rows(), positions + position_offset)
                                 : nn::embed_tokens(words, ids);
  if (multipliers.embedding != 1)  // rounded to the weights' type first, as in transformers
    x = x * at::scalar_tensor(multipliers.embedding, table.options().device(at::kCPU));
  if (context.features.defined())
    x = x.flatten(0, 1).index_put({context.feature_places}, context.features.to(x.scalar_type())).view(x.sizes());
  return nn::own_tokens(table, context.embedded(x));
}

void LlamaModel::predict(const at::Tensor& hidden, const LlamaContext& given) const {
  // A stage lists the model's own blocks by number; depths are not among them.
  const auto made = std::make_shared<LlamaContext>(given);
  made->stage = nullptr;
  const std::shared_ptr<const LlamaContext> context = made;
  at::Tensor h = hidden;
  for (std::size_t i = 0; i < depths.size(); ++i) {
    Predictions::Depth& depth = made->predictions->depths.at(i);
    const auto& layer = depths[i];
    const at::Tensor tokens = embedded(depth.ids, {}, *context);  // positions are rotated in models with depths
    made->first_token = nn::first_own_token(layer->self_attn->first_weight(), depth.ids.size(1));
    const at::Tensor x = layer->ends->begin(h, tokens, context->between_layers());
    const auto transform = [layer, context](const at::Tensor& y) { return layer->forward(y, context); };
    h = layer->ends->end(context->run(layer->part, ModelPart::Kind::block, layer->index, transform, x));
    depth.hidden = multipliers.logits == 1 ? h : h * multipliers.logits;
  }
}

void LlamaModel::drop_all_but(const std::vector<layout::StagePart>& parts, bool embeddings_at_end) {
  const KeptParts kept(parts);
  torch::nn::Module& list = *named_children()["layers"];
  drop_blocks(list, layers, kept);
  if (!kept.embeddings && embed_positions) drop(*this, names.positions, embed_positions);
  if (!kept.embeddings && !(embeddings_at_end && kept.end)) drop(*this, names.embedding, embed_tokens);
  if (kept.end) return;
  for (std::size_t i = 0; i < depths.size(); ++i) drop(list, std::to_string(layers.size() + i), depths[i]);
  drop(*this, names.norm, norm);
}

Llama::Llama(const Value& hf_config, std::optional<std::uint64_t> seed) : CausalLm(hf_config) {
  const ModelSpec& c = spec();
  const std::string path = c.names.model;
  torch::nn::Module* parent = this;
  const std::size_t dot = path.find('.');
  if (dot != std::string::npos)
    parent = register_module(path.substr(0, dot), std::make_shared<torch::nn::Module>()).get();
  model = parent->register_module(path.substr(dot + 1), std::make_shared<LlamaModel>(c));
  if (!c.tied) lm_head = register_module(c.names.head, std::make_shared<Table>(c.vocabulary, c.hidden, c.head_bias));
  if (c.depths > 0)  // the name in Hugging Face's config.json and its readers
    hf_config_.set("num_nextn_predict_layers", Value::of(c.depths));
  if (c.experts)
    set_balance({.experts = c.experts->count, .top_k = c.experts->top_k, .auxiliary = c.experts->auxiliary});
  if (seed) initialise(*seed);
}

/// The standard deviation for initializing a matrix.
double Llama::initial_std(const std::string& name) const {
  const double range = spec().initializer_range;
  if (!spec().mup || is_embedding(name)) return range;
  const DecoderNames& names = spec().names;
  const auto ends = [&](const char* module) { return name.ends_with(concat(".", module, ".weight")); };
  // "w2" and "down_proj" also belong to experts
  const bool residual = ends(names.output) || ends(names.down) || ends("down_proj") || ends("w2");
  return residual ? spec().mup->residual_std(range, spec().layers) : spec().mup->hidden_std(range);
}

void Llama::initialise(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    if (item.key().ends_with(".A_log"))  // as in GatedDeltaNet
      item.value().uniform_(1, 16, generator_by_name(seed, item.key())).log_();
    else if (item.key().ends_with(".dt_bias"))
      item.value().fill_(1);
    else if (item.key().ends_with(".conv_weight"))
      item.value().uniform_(-1, 1, generator_by_name(seed, item.key())).div_(std::sqrt(item.value().size(1)));
    else if (item.value().dim() > 1)
      normal_by_name(item.value(), initial_std(item.key()), seed, item.key());
    else
      item.value().fill_(item.key().ends_with("bias") || spec().norms.begins_at_zero ? 0 : 1);
  }
}

void Llama::drop_all_but(const std::vector<layout::StagePart>& parts) {
  model->drop_all_but(parts, !tied_parameter().empty());
  if (lm_head && !KeptParts(parts).end) drop(*this, spec().names.head, lm_head);
}

void Llama::drop_experts_but(std::int64_t first, std::int64_t count) {
  for (const auto* const layers : {&model->layers, &model->depths})
    for (const auto& layer : *layers)
      if (const auto moe = layer ? std::dynamic_pointer_cast<MoeMlp>(layer->mlp) : nullptr)
        moe->keep_experts(first, count);
}

at::Tensor Llama::hidden(const at::Tensor& ids, ForwardContext context) {
  return model->forward(ids, std::move(context));
}

std::vector<ModelPart> Llama::parts() const {
  std::vector<ModelPart> all;
  for (std::int64_t block = 0; block < spec().layers + spec().depths; ++block)
    for (const auto kind : {ModelPart::Kind::block, ModelPart::Kind::attention, ModelPart::Kind::mlp})
      all.push_back(part_of(spec().names)(kind, block));
  return all;
}

void Llama::freeze_predictions() {
  for (const auto& depth : model->depths)
    for (at::Tensor& parameter : depth->parameters()) parameter.set_requires_grad(false);
}

}  // namespace tessera::models
