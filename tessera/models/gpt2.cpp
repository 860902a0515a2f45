#include <tessera/models/gpt2.h>

#include <tessera/base/error.h>
#include <tessera/models/kept_parts.h>
#include <tessera/nn/nn.h>
#include <cmath>

namespace tessera::models {
namespace {

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Returns x + dropout(delta + bias), computed in one pass without dropout.
at::Tensor end_branch(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias, double dropout,
                      const nn::RandomPlace& place) {
  if (dropout == 0) return nn::add_bias(x, delta, bias);
  return nn::add_bias(x, nn::dropout(delta + bias, dropout, place), {});
}

ModelPart part(ModelPart::Kind kind, std::int64_t block) {
  static constexpr std::string_view ends[] = {"", ".attn", ".mlp"};
  return {kind, block, concat("transformer.h.", block, ends[static_cast<std::size_t>(kind)])};
}

}  // namespace

Gpt2Attention::Gpt2Attention(const ModelSpec& c, std::int64_t index)
    : index(index), head_size(c.head_size), scale(c.scale_of_scores(index)), dropout(c.attention_dropout) {
  c_attn = register_module("c_attn", std::make_shared<Conv1D>(c.hidden, 3 * c.hidden));
  c_proj = register_module("c_proj", std::make_shared<Conv1D>(c.hidden, c.hidden));
}

at::Tensor Gpt2Attention::forward(const at::Tensor& x, const ForwardContext& context) {
  const nn::AttentionOptions options{.scale = scale,
                                     .dropout = is_training() ? dropout : 0,
                                     .random = context.of_weights(index, nn::first_own(c_attn->weight, 1) / head_size)};
  if (!context.cache && !context.part) {
    if (const auto apart = c_attn->forward_apart(x)) {
      const auto heads = [&](std::size_t i) { return (*apart)[i].view({x.size(0), x.size(1), -1, head_size}); };
      return c_proj->project(nn::attention(heads(0), heads(1), heads(2), context.documents, options), context.random);
    }
  }
  const at::Tensor qkv = c_attn->forward(x, context.between_layers());  // [B, T, 3 C]
  at::Tensor mixed;
  if (context.cache) {
    const at::Tensor parts = qkv.view({qkv.size(0), qkv.size(1), 3, -1, head_size});  // [B, T, 3, H, D]
    const auto [keys, values] = context.cache->append(
        static_cast<std::size_t>(index), parts.select(2, 1).transpose(1, 2), parts.select(2, 2).transpose(1, 2));
    mixed = nn::cached_attention(parts.select(2, 0), keys, values, options);
  } else if (context.part) {
    const at::Tensor parts = qkv.view({qkv.size(0), qkv.size(1), 3, -1, head_size});  // [B, t, 3, H, D]
    mixed = context.attend(parts.select(2, 0), parts.select(2, 1), parts.select(2, 2), options);
  } else {
    mixed = nn::packed_attention(qkv, qkv.size(2) / (3 * head_size), context.documents, options);
  }
  return c_proj->project(mixed, context.random);
}

Gpt2Mlp::Gpt2Mlp(const ModelSpec& c) : activation(activation_of(c.activation)) {
  c_fc = register_module("c_fc", std::make_shared<Conv1D>(c.hidden, c.inner));
  c_proj = register_module("c_proj", std::make_shared<Conv1D>(c.inner, c.hidden));
}

at::Tensor Gpt2Mlp::forward(const at::Tensor& x, const ForwardContext& context) {
  const at::Tensor u = c_fc->project(x, context.between_layers());  // [B, T, n_inner]
  return c_proj->project(activated(activation, u, c_fc->bias), context.random);
}

Gpt2Block::Gpt2Block(const ModelSpec& c, std::int64_t index) : index(index), dropout(c.drops.mlp) {
  ln_1 = register_module("ln_1", std::make_shared<LayerNorm>(c.hidden, c.norms.eps));
  attn = register_module("attn", std::make_shared<Gpt2Attention>(c, index));
  ln_2 = register_module("ln_2", std::make_shared<LayerNorm>(c.hidden, c.norms.eps));
  mlp = register_module("mlp", std::make_shared<Gpt2Mlp>(c));
}

at::Tensor Gpt2Block::forward(const at::Tensor& x, const std::shared_ptr<const ForwardContext>& context) {
  const double p = is_training() ? dropout : 0;
  at::Tensor sum = x, delta, bias;  // the residual stream and its pending addend
  if (context->runs_attention(index)) {
    const auto first = nn::add_layer_norm(x, {}, {}, ln_1->weight, ln_1->bias, ln_1->eps, nn::NormReaders::linear_maps);
    const auto attend = [attn = attn, context](const at::Tensor& h) { return attn->forward(h, *context); };
    sum = first.sum;
    delta = context->run(part, ModelPart::Kind::attention, index, attend, first.normed);
    bias = attn->c_proj->bias;
    const nn::RandomPlace place = context->between_layers(ForwardContext::Draw::attention, index);
    if (!context->runs_mlp(index)) return end_branch(sum, delta, bias, p, place);
    if (p > 0) {
      delta = nn::dropout(delta + bias, p, place);
      bias.reset();
    }
  }
  const auto second =
      nn::add_layer_norm(sum, delta, bias, ln_2->weight, ln_2->bias, ln_2->eps, nn::NormReaders::linear_maps);
  const auto transform = [mlp = mlp, context](const at::Tensor& h) { return mlp->forward(h, *context); };
  return end_branch(second.sum, context->run(part, ModelPart::Kind::mlp, index, transform, second.normed),
                    mlp->c_proj->bias, p, context->between_layers(ForwardContext::Draw::mlp, index));
}

void Gpt2Block::drop_attention() {
  drop(*this, "ln_1", ln_1);
  drop(*this, "attn", attn);
}

void Gpt2Block::drop_mlp() {
  drop(*this, "ln_2", ln_2);
  drop(*this, "mlp", mlp);
}

Gpt2Model::Gpt2Model(const ModelSpec& c) : dropout(c.drops.embedding), multipliers(c.multipliers) {
  wte = register_module("wte", std::make_shared<Table>(c.vocabulary, c.hidden));
  wpe = register_module("wpe", std::make_shared<Table>(c.positions, c.hidden));
  const auto blocks = register_module("h", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < c.layers; ++i)
    h.push_back(blocks->register_module(std::to_string(i), std::make_shared<Gpt2Block>(c, i)));
  ln_f = register_module("ln_f", std::make_shared<LayerNorm>(c.hidden, c.norms.eps));
}

at::Tensor Gpt2Model::forward(const at::Tensor& ids, ForwardContext given) {
  at::Tensor x = std::move(given.input);  // [B, T, C]
  if (given.begins()) x = embedded(ids, given);
  for (std::size_t i = 0; i < h.size(); ++i) {
    if (!given.runs(static_cast<std::int64_t>(i))) continue;
    const bool attends = given.runs_attention(h[i]->index);
    const at::Tensor& cut = attends ? h[i]->attn->c_attn->weight : h[i]->mlp->c_fc->weight;
    if (!given.begins() && given.stage->first_block == h[i]->index) nn::begin_with(cut, x);
    given.first_token = nn::first_own_token(cut, ids.size(1));
  }
  const auto context = std::make_shared<const ForwardContext>(std::move(given));
  for (std::size_t i = 0; i < h.size(); ++i) {
    if (!context->runs(static_cast<std::int64_t>(i))) continue;
    const auto transform = [block = h[i], context](const at::Tensor& y) { return block->forward(y, context); };
    x = context->run(part, ModelPart::Kind::block, h[i]->index, transform, x);
  }
  if (!context->ends()) return x;
  x = nn::layer_norm(x, ln_f->weight, ln_f->bias, ln_f->eps);
  return multipliers.logits == 1 ? x : x * multipliers.logits;  // the head is linear
}

at::Tensor Gpt2Model::embedded(const at::Tensor& ids, const ForwardContext& given) {
  const at::Tensor words = wte->rows(), places = wpe->rows();
  at::Tensor sum = given.part ? nn::embed_at(ids, words, places, given.part->positions)
                              : nn::embed(ids, words, places, given.cache ? given.cache->tokens() : 0, given.documents);
  if (multipliers.embedding != 1) sum = sum * multipliers.embedding;
  const at::Tensor x = nn::own_tokens(wte->weight, given.embedded(sum));
  if (!is_training()) return x;
  ForwardContext place = given;
  place.first_token = nn::first_own_token(wte->weight, ids.size(1));
  return nn::dropout(x, dropout, place.between_layers(ForwardContext::Draw::embedding));
}

void Gpt2Model::drop_all_but(const std::vector<layout::StagePart>& parts, bool tied) {
  const KeptParts kept(parts);
  drop_blocks(*named_children()["h"], h, kept);
  if (!kept.embeddings) drop(*this, "wpe", wpe);
  if (!kept.embeddings && !(tied && kept.end)) drop(*this, "wte", wte);
  if (!kept.end) drop(*this, "ln_f", ln_f);
}

Gpt2::Gpt2(const Value& hf_config, std::optional<std::uint64_t> seed) : CausalLm(hf_config) {
  transformer = register_module("transformer", std::make_shared<Gpt2Model>(spec()));
  if (!spec().tied) lm_head = register_module("lm_head", std::make_shared<Table>(spec().vocabulary, spec().hidden));
  if (seed) initialise(*seed);
}

void Gpt2::initialise(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  const double range = spec().initializer_range;
  const architectures::Mup mup = spec().mup.value_or(architectures::Mup{});
  for (auto& item : named_parameters()) {
    if (ends_with(item.key(), ".bias"))
      item.value().zero_();
    else if (item.value().dim() == 1)
      item.value().fill_(1);
    else
      normal_by_name(item.value(),
                     ends_with(item.key(), "c_proj.weight") ? mup.residual_std(range, spec().layers)
                     : is_embedding(item.key())             ? range
                                                            : mup.hidden_std(range),
                     seed, item.key());
  }
}

void Gpt2::drop_all_but(const std::vector<layout::StagePart>& parts) {
  transformer->drop_all_but(parts, spec().tied);
  if (lm_head && !KeptParts(parts).end) drop(*this, "lm_head", lm_head);
}

at::Tensor Gpt2::hidden(const at::Tensor& ids, ForwardContext context) {
  return transformer->forward(ids, std::move(context));
}

std::vector<ModelPart> Gpt2::parts() const {
  std::vector<ModelPart> all;
  for (std::int64_t block = 0; block < spec().layers; ++block)
    for (const auto kind : {ModelPart::Kind::block, ModelPart::Kind::attention, ModelPart::Kind::mlp})
      all.push_back(part(kind, block));
  return all;
}

}  // namespace tessera::models
