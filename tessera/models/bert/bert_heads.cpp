// BERT's heads and their initial values.

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/models/bert/bert.h>
#include <tessera/models/kept_parts.h>
#include <tessera/nn/capturing.h>
#include <tessera/nn/nn.h>

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

namespace tessera::models {
namespace {

Value with_architecture(Value config, const char* architecture) {
  config.set("architectures", Value::make_array({Value::of(architecture)}));
  config.set("model_type", Value::of("bert"));
  return config;
}

/// scale * the sum of the cross-entropies of rows of logits [N, classes] with labels [N]; -100 is not scored.
at::Tensor summed_loss(const at::Tensor& logits, const at::Tensor& labels, double scale, double smoothing) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, nn::ignored_label, smoothing) * scale;
}

}  // namespace

BertWithHead::BertWithHead(const Value& hf_config, const char* architecture, bool with_pooler)
    : LanguageModel(with_architecture(hf_config, architecture)) {
  bert = register_module("bert", std::make_shared<BertModel>(spec(), with_pooler));
}

void BertWithHead::initialise(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    at::Tensor& parameter = item.value();
    if (item.key().ends_with("bias"))
      parameter.zero_();
    else if (parameter.dim() == 1)
      parameter.fill_(1);
    else
      normal_by_name(parameter, spec().initializer_range, seed, item.key());
  }
  bert->embeddings->word_embeddings->weight.select(0, spec().pad_token).zero_();
}

at::Tensor BertWithHead::forward(const at::Tensor& ids, const at::Tensor& attention_mask,
                                 const at::Tensor& token_type_ids) {
  if (attention_mask.defined() && attention_mask.sizes() != ids.sizes())
    throw InputError(concat("forward: attention_mask is ", c10::str(attention_mask.sizes()), ", ids are ",
                            c10::str(ids.sizes()), ": both must be [B, T]"));
  const at::Tensor seen = attention_mask.defined() ? attention_mask.ne(0) : attention_mask;
  const ForwardContext context = context_of({});
  return scores(bert->forward(ids, token_type_ids, seen, BertContext{context}), context.random);
}

at::Tensor BertWithHead::hidden(const data::Batch& batch, const ForwardContext& given) {
  BertContext context{given};
  context.lengths = batch.lengths;
  at::Tensor seen = batch.seen;
  if (!seen.defined() && !batch.part) seen = seen_tokens(batch.lengths, batch.ids.size(1), batch.ids.device());
  return bert->forward(batch.ids, batch.types, seen, std::move(context));
}

at::Tensor BertWithHead::loss(const data::Batch& batch, double scale) {
  const ForwardContext context = context_of(batch);
  return loss_of(hidden(batch, context), batch, context, scale);
}

at::Tensor BertWithHead::run_stage(const data::Batch& batch, const layout::StagePart& part, const at::Tensor& input,
                                   double scale) {
  ForwardContext context = context_of(batch);
  context.stage = &part;
  context.input = input;
  const at::Tensor h = hidden(batch, context);
  return part.end ? loss_of(h, batch, context, scale) : h;
}

std::vector<ModelPart> BertWithHead::parts() const {
  static constexpr std::array<std::pair<ModelPart::Kind, std::string_view>, 3> parts{
      {{ModelPart::Kind::block, ""},
       {ModelPart::Kind::attention, ".attention"},
       {ModelPart::Kind::mlp, ".intermediate"}}};
  std::vector<ModelPart> all;
  for (std::int64_t block = 0; block < spec().layers; ++block)
    for (const auto& [kind, end] : parts) all.push_back({kind, block, concat("bert.encoder.layer.", block, end)});
  return all;
}

BertForMaskedLM::BertForMaskedLM(const Value& hf_config, std::optional<std::uint64_t> seed)
    : BertWithHead(hf_config, "BertForMaskedLM", /*with_pooler=*/false) {
  const auto cls = register_module("cls", std::make_shared<torch::nn::Module>());
  predictions = cls->register_module("predictions", std::make_shared<BertLMPredictionHead>(spec()));
  if (seed) initialise(*seed);
}

at::Tensor BertForMaskedLM::scores(const at::Tensor& hidden, const nn::RandomPlace& place) {
  const at::Tensor& table =
      predictions->decoder ? predictions->decoder->weight : bert->embeddings->word_embeddings->weight;
  return nn::linear(predictions->transform(hidden, place), table, predictions->bias, nn::WeightLayout::out_in)
      .to(at::kFloat);
}

void BertForMaskedLM::drop_all_but(const std::vector<layout::StagePart>& parts) {
  bert->drop_all_but(parts, spec().tied);
  if (!KeptParts(parts).end) drop(*this, "cls", predictions);
}

at::Tensor BertForMaskedLM::loss_of(const at::Tensor& h, const data::Batch& batch, const ForwardContext& context,
                                    double scale) {
  const at::Tensor labels = batch.labels.reshape({-1});  // [B T]
  if (nn::capturing())                                   // the number of scored positions depends on data
    return summed_loss(scores(h.reshape({-1, h.size(2)}), context.random), labels, scale, label_smoothing());
  at::Tensor places = labels.ne(nn::ignored_label).nonzero().squeeze(1);  // [N]
  if (places.numel() == 0) places = at::zeros({1}, places.options());     // the head still runs, with a loss of 0
  const at::Tensor scored = h.reshape({-1, h.size(2)}).index_select(0, places);  // [N, C]
  return summed_loss(scores(scored, context.random), labels.index_select(0, places), scale, label_smoothing());
}

BertForSequenceClassification::BertForSequenceClassification(const Value& hf_config, std::optional<std::uint64_t> seed)
    : BertWithHead(hf_config, "BertForSequenceClassification", /*with_pooler=*/true) {
  classifier = register_module("classifier", std::make_shared<Linear>(spec().hidden, spec().labels, true));
  if (seed) initialise(*seed);
}

at::Tensor BertForSequenceClassification::scores(const at::Tensor& hidden, const nn::RandomPlace& place) {
  const at::Tensor pooled = bert->pooled(hidden, place);  // [B, C]
  const at::Tensor kept = nn::dropout(pooled, is_training() ? spec().drops.classifier : 0,
                                      ForwardContext{.random = place}.between_layers(ForwardContext::Draw::classifier));
  return classifier->forward(kept, place).to(at::kFloat);
}

void BertForSequenceClassification::drop_all_but(const std::vector<layout::StagePart>& parts) {
  bert->drop_all_but(parts, /*tied=*/false);
  if (!KeptParts(parts).end) drop(*this, "classifier", classifier);
}

at::Tensor BertForSequenceClassification::loss_of(const at::Tensor& hidden, const data::Batch& batch,
                                                  const ForwardContext& context, double scale) {
  const at::Tensor found = scores(hidden, context.random);
  note_prediction(found);
  return summed_loss(found, batch.labels.select(1, 0), scale, label_smoothing());
}

}  // namespace tessera::models
