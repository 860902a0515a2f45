#include <tessera/models/bert/bert.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/models/kept_parts.h>
#include <tessera/nn/attention/dropout_attention.h>
#include <tessera/nn/attention/two_way_attention.h>
#include <tessera/nn/device/send.h>
#include <tessera/nn/nn.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::models {
namespace {

ModelPart part(ModelPart::Kind kind, std::int64_t block) {
  static constexpr std::string_view ends[] = {"", ".attention", ".intermediate"};
  return {kind, block, concat("bert.encoder.layer.", block, ends[static_cast<std::size_t>(kind)])};
}

}  // namespace

BertEmbeddings::BertEmbeddings(const ModelSpec& c) : pad_token_id(c.pad_token), dropout(c.drops.embedding) {
  const std::int64_t width = c.hidden;
  word_embeddings = register_module("word_embeddings", std::make_shared<Table>(c.vocabulary, width));
  position_embeddings = register_module("position_embeddings", std::make_shared<Table>(c.positions, width));
  token_type_embeddings = register_module("token_type_embeddings", std::make_shared<Table>(c.segments, width));
  norm = register_module("LayerNorm", std::make_shared<LayerNorm>(width, c.norms.eps));
}

at::Tensor BertEmbeddings::forward(const at::Tensor& ids, const at::Tensor& types, ForwardContext& context) {
  const at::Tensor& table = word_embeddings->weight;
  const at::Tensor words = context.embedded(nn::embed_tokens(word_embeddings->rows(), ids, pad_token_id));  // [B, T, C]
  const at::Tensor of_kinds = token_type_embeddings->rows(), of_places = position_embeddings->rows();
  const at::Tensor kinds = types.defined() ? at::embedding(of_kinds, types) : of_kinds.select(0, 0);
  const at::Tensor places = context.part ? at::embedding(of_places, nn::send(context.part->positions, ids.device()))
                                         : of_places.slice(0, 0, ids.size(1));
  const at::Tensor x = words + kinds + places;
  const at::Tensor own = nn::own_tokens(table, nn::layer_norm(x, norm->weight, norm->bias, norm->eps));
  context.first_token = nn::first_own_token(table, ids.size(1));
  return nn::dropout(own, is_training() ? dropout : 0, context.between_layers(ForwardContext::Draw::embedding));
}

void BertEmbeddings::keep_words_only() {
  drop(*this, "position_embeddings", position_embeddings);
  drop(*this, "token_type_embeddings", token_type_embeddings);
  drop(*this, "LayerNorm", norm);
}

BertSelfAttention::BertSelfAttention(const ModelSpec& c, std::int64_t index)
    : index(index), heads(c.heads), dropout(c.attention_dropout) {
  const std::int64_t width = c.hidden;
  query = register_module("query", std::make_shared<Linear>(width, width, true));
  key = register_module("key", std::make_shared<Linear>(width, width, true));
  value = register_module("value", std::make_shared<Linear>(width, width, true));
}

at::Tensor BertSelfAttention::forward(const at::Tensor& x, const BertContext& context) {
  const std::int64_t d = x.size(2) / heads;
  const nn::RandomPlace place = context.between_layers();
  const nn::AttentionOptions options{.scale = 1 / std::sqrt(static_cast<double>(d)),
                                     .dropout = is_training() ? dropout : 0,
                                     .random = context.of_weights(index, nn::first_own(query->weight, 0) / d)};
  // [B, T, H, D]: the heads and tokens that the projections return (they may be cut over ranks).
  const auto split = [&](const at::Tensor& y) { return y.view({y.size(0), y.size(1), -1, d}); };
  const at::Tensor q = split(query->forward(x, place)), k = split(key->forward(x, place)),
                   v = split(value->forward(x, place));
  if (context.part) return context.attend_both_ways(q, k, v, context.lengths, options);
  const at::Tensor& mask = context.mask;
  if (options.dropout == 0 && (!mask.defined() || !context.lengths.empty()))
    return nn::two_way_attention(q, k, v, context.lengths, options.scale);
  const at::Tensor by_head[] = {q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)};
  const at::Tensor mixed =
      options.dropout > 0
          ? nn::dropout_attention({by_head[0], by_head[1], by_head[2], mask, /*causal=*/false, options.scale},
                                  {options.dropout, options.random})
          : at::scaled_dot_product_attention(by_head[0], by_head[1], by_head[2], mask.to(q.scalar_type()),
                                             /*dropout_p=*/0, /*is_causal=*/false);
  return mixed.transpose(1, 2).flatten(2);  // [B, T, H D]
}

BertOutput::BertOutput(const ModelSpec& c, std::int64_t in, std::int64_t index, ForwardContext::Draw draw)
    : index(index), draw(draw), dropout(c.drops.mlp) {
  dense = register_module("dense", std::make_shared<Linear>(in, c.hidden, true));
  norm = register_module("LayerNorm", std::make_shared<LayerNorm>(c.hidden, c.norms.eps));
}

at::Tensor BertOutput::forward(const at::Tensor& h, const at::Tensor& residual, const ForwardContext& context) {
  if (is_training() && dropout > 0) {
    const at::Tensor kept =
        nn::dropout(dense->forward(h, context.random), dropout, context.between_layers(draw, index));
    return nn::add_layer_norm(residual, kept, {}, norm->weight, norm->bias, norm->eps).normed;
  }
  const at::Tensor delta = dense->project(h, context.random);
  return nn::add_layer_norm(residual, delta, dense->bias, norm->weight, norm->bias, norm->eps).normed;
}

BertAttention::BertAttention(const ModelSpec& c, std::int64_t index) {
  self = register_module("self", std::make_shared<BertSelfAttention>(c, index));
  output = register_module("output", std::make_shared<BertOutput>(c, c.hidden, index, ForwardContext::Draw::attention));
}

BertIntermediate::BertIntermediate(const ModelSpec& c) : activation(activation_of(c.activation)) {
  dense = register_module("dense", std::make_shared<Linear>(c.hidden, c.inner, true));
}

at::Tensor BertIntermediate::forward(const at::Tensor& x, const ForwardContext& context) {
  return activated(activation, dense->project(x, context.between_layers()), dense->bias);
}

BertLayer::BertLayer(const ModelSpec& c, std::int64_t index) : index(index) {
  attention = register_module("attention", std::make_shared<BertAttention>(c, index));
  intermediate = register_module("intermediate", std::make_shared<BertIntermediate>(c));
  output = register_module("output", std::make_shared<BertOutput>(c, c.inner, index, ForwardContext::Draw::mlp));
}

at::Tensor BertLayer::forward(const at::Tensor& x, const std::shared_ptr<const BertContext>& context) {
  const auto attend = [attention = attention, context](const at::Tensor& h) { return attention->forward(h, *context); };
  const at::Tensor h = context->run(part, ModelPart::Kind::attention, index, attend, x);
  const auto transform = [intermediate = intermediate, output = output, context](const at::Tensor& y) {
    return output->forward(intermediate->forward(y, *context), y, *context);
  };
  return context->run(part, ModelPart::Kind::mlp, index, transform, h);
}

BertModel::BertModel(const ModelSpec& c, bool with_pooler) : positions(c.positions) {
  embeddings = register_module("embeddings", std::make_shared<BertEmbeddings>(c));
  const auto encoder = register_module("encoder", std::make_shared<torch::nn::Module>());
  const auto layers = encoder->register_module("layer", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < c.layers; ++i)
    layer.push_back(layers->register_module(std::to_string(i), std::make_shared<BertLayer>(c, i)));
  if (!with_pooler) return;
  const auto parent = register_module("pooler", std::make_shared<torch::nn::Module>());
  pooler = parent->register_module("dense", std::make_shared<Linear>(c.hidden, c.hidden, true));
}

at::Tensor BertModel::forward(const at::Tensor& ids, const at::Tensor& types, const at::Tensor& seen,
                              BertContext given) {
  TESSERA_CHECK(ids.dim() == 2, "ids must be [B, T]; they have ", ids.dim(), " dimensions");
  const std::int64_t tokens = given.part ? given.part->longest : ids.size(1);
  if (tokens > positions)
    throw InputError(concat("a sequence of ", tokens, " tokens does not fit the model's ", positions,
                            " positions; use a shorter block_size or max_length"));
  if (seen.defined())
    given.mask =
        at::zeros({ids.size(0), 1, 1, ids.size(1)}, seen.options().dtype(at::kFloat))
            .masked_fill_(seen.logical_not().unsqueeze(1).unsqueeze(1), -std::numeric_limits<float>::infinity());
  at::Tensor x = std::move(given.input);  // [B, T, C]
  if (given.begins()) x = embeddings->forward(ids, types, given);
  at::Tensor cut = embeddings ? embeddings->word_embeddings->weight : at::Tensor();  // shows how tokens are divided
  for (const auto& block : layer)
    if (block) cut = block->attention->self->query->weight;
  TESSERA_CHECK(cut.defined(), "a stage of BERT without a block or a table");
  if (!given.begins()) nn::begin_with(cut, x);
  given.first_token = nn::first_own_token(cut, ids.size(1));
  const auto context = std::make_shared<const BertContext>(std::move(given));
  for (std::size_t i = 0; i < layer.size(); ++i) {
    if (!context->runs(static_cast<std::int64_t>(i))) continue;
    const auto transform = [block = layer[i], context](const at::Tensor& y) { return block->forward(y, context); };
    x = context->run(part, ModelPart::Kind::block, layer[i]->index, transform, x);
  }
  return context->ends() ? nn::all_tokens(cut, x) : x;
}

void BertModel::drop_all_but(const std::vector<layout::StagePart>& parts, bool tied) {
  const KeptParts kept(parts);
  drop_blocks(*named_children()["encoder"]->named_children()["layer"], layer, kept);
  const bool any = std::any_of(layer.begin(), layer.end(), [](const auto& block) { return block != nullptr; });
  if (!any && !kept.embeddings && !(tied && kept.end))
    throw InputError("a rank of the pipeline has only BERT's head: give it a block (--pipeline_layout)");
  if (!kept.embeddings && tied && kept.end) {
    embeddings->keep_words_only();
  } else if (!kept.embeddings) {
    drop(*this, "embeddings", embeddings);
  }
  if (pooler && !kept.end) drop(*this, "pooler", pooler);
}

at::Tensor BertModel::pooled(const at::Tensor& hidden, const nn::RandomPlace& place) {
  return at::tanh(pooler->forward(hidden.select(1, 0), place));
}

BertLMPredictionHead::BertLMPredictionHead(const ModelSpec& c) : activation(activation_of(c.activation)) {
  const auto parent = register_module("transform", std::make_shared<torch::nn::Module>());
  dense = parent->register_module("dense", std::make_shared<Linear>(c.hidden, c.hidden, true));
  norm = parent->register_module("LayerNorm", std::make_shared<LayerNorm>(c.hidden, c.norms.eps));
  if (!c.tied) decoder = register_module("decoder", std::make_shared<Table>(c.vocabulary, c.hidden));
  bias = register_parameter("bias", at::empty({c.vocabulary}));
}

at::Tensor BertLMPredictionHead::transform(const at::Tensor& h, const nn::RandomPlace& place) {
  return nn::layer_norm(activated(activation, dense->project(h, place), dense->bias), norm->weight, norm->bias,
                        norm->eps);
}

at::Tensor seen_tokens(const std::vector<std::int64_t>& lengths, std::int64_t length, c10::Device device) {
  if (std::all_of(lengths.begin(), lengths.end(), [&](std::int64_t n) { return n == length; })) return {};
  const at::Tensor ends = at::tensor(lengths, at::kLong).unsqueeze(1);  // [B, 1]
  return at::arange(length, at::kLong).unsqueeze(0).lt(ends).to(device);
}

}  // namespace tessera::models
