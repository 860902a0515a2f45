// BERT's heads, their weights' names and initial values.

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/models/bert/bert.h>
#include <tessera/models/kept_parts.h>
#include <tessera/nn/nn.h>

#include <array>
#include <cmath>
#include <string_view>

namespace tessera::models {
namespace {

Value with_architecture(Value config, const char* architecture) {
  config.set("architectures", Value::make_array({Value::of(architecture)}));
  config.set("model_type", Value::of("bert"));
  return config;
}

bool has_architecture(const Value& config, std::string_view name) {
  const Value* classes = config.find("architectures");
  return classes && classes->is_array() && !classes->items().empty() && classes->items()[0].as_string() == name;
}

/// scale * the sum of the cross-entropies of rows of logits [N, classes] with labels [N]; -100 is not scored.
at::Tensor summed_loss(const at::Tensor& logits, const at::Tensor& labels, double scale, double smoothing) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, nn::ignored_label, smoothing) * scale;
}

}  // namespace

BertWithHead::BertWithHead(const Value& hf_config, const char* architecture, bool with_pooler)
    : hf_config_(with_architecture(hf_config, architecture)), config_(parse_bert_config(hf_config)) {
  bert = register_module("bert", std::make_shared<BertModel>(config_, with_pooler));
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
      normal_by_name(parameter, config_.initializer_range, seed, item.key());
  }
  bert->embeddings->word_embeddings->weight.select(0, config_.pad_token_id).zero_();
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
  const at::Tensor seen = batch.part ? at::Tensor() : seen_tokens(batch.lengths, batch.ids.size(1), batch.ids.device());
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

BlockFlops BertWithHead::block_flops(std::int64_t, std::int64_t block_size) const {
  return plain_block_flops(config_.hidden_size, config_.intermediate_size, block_size);
}

layout::DecoderShape BertWithHead::shape() const {
  return {.blocks = config_.num_hidden_layers,
          .width = config_.hidden_size,
          .inner = config_.intermediate_size,
          .key_value_width = config_.hidden_size};
}

layout::TensorPlan BertWithHead::tensor_plan() const {
  using enum layout::TensorStyle;
  const std::int64_t heads = config_.num_attention_heads;
  layout::TensorPlan plan = {
      {"attention.self.query", colwise, 1, heads},
      {"attention.self.key", colwise, 1, heads},
      {"attention.self.value", colwise, 1, heads},
      {"attention.output.dense", rowwise},
      {"attention.output.LayerNorm", sequence_parallel},
      {"intermediate.dense", colwise},
      {"layer.*.output.dense", rowwise},
      {"layer.*.output.LayerNorm", sequence_parallel},
      {.pattern = "embeddings.word_embeddings", .style = embedding_rowwise, .whole_input = true},
  };
  const auto named = named_parameters();
  if (named.contains("cls.predictions.decoder.weight"))
    plan.push_back({.pattern = "predictions.decoder", .style = colwise_gather_output, .whole_input = true});
  if (named.contains("cls.predictions.bias")) plan.push_back({"cls.predictions.bias", colwise_gather_output});
  return plan;
}

std::vector<ModelPart> BertWithHead::parts() const {
  static constexpr std::array<std::pair<ModelPart::Kind, std::string_view>, 3> parts{
      {{ModelPart::Kind::block, ""},
       {ModelPart::Kind::attention, ".attention"},
       {ModelPart::Kind::mlp, ".intermediate"}}};
  std::vector<ModelPart> all;
  for (std::int64_t block = 0; block < config_.num_hidden_layers; ++block)
    for (const auto& [kind, end] : parts) all.push_back({kind, block, concat("bert.encoder.layer.", block, end)});
  return all;
}

BertForMaskedLM::BertForMaskedLM(const Value& hf_config, std::optional<std::uint64_t> seed)
    : BertWithHead(hf_config, "BertForMaskedLM", /*with_pooler=*/false) {
  const auto cls = register_module("cls", std::make_shared<torch::nn::Module>());
  predictions = cls->register_module("predictions", std::make_shared<BertLMPredictionHead>(config_));
  if (seed) initialise(*seed);
}

at::Tensor BertForMaskedLM::scores(const at::Tensor& hidden, const nn::RandomPlace& place) {
  const at::Tensor& table =
      predictions->decoder ? predictions->decoder->weight : bert->embeddings->word_embeddings->weight;
  return nn::linear(predictions->transform(hidden, place), table, predictions->bias, nn::WeightLayout::out_in)
      .to(at::kFloat);
}

std::string BertForMaskedLM::tied_parameter() const {
  return config_.tie_word_embeddings ? "bert.embeddings.word_embeddings.weight" : "";
}

void BertForMaskedLM::drop_all_but(const std::vector<layout::StagePart>& parts) {
  bert->drop_all_but(parts, config_.tie_word_embeddings);
  if (!KeptParts(parts).end) drop(*this, "cls", predictions);
}

at::Tensor BertForMaskedLM::loss_of(const at::Tensor& h, const data::Batch& batch, const ForwardContext& context,
                                    double scale) {
  const at::Tensor labels = batch.labels.reshape({-1});                   // [B T]
  at::Tensor places = labels.ne(nn::ignored_label).nonzero().squeeze(1);  // [N]
  if (places.numel() == 0) places = at::zeros({1}, places.options());     // the head takes part, with a loss of 0
  const at::Tensor scored = h.reshape({-1, h.size(2)}).index_select(0, places);  // [N, C]
  return summed_loss(scores(scored, context.random), labels.index_select(0, places), scale, label_smoothing());
}

BertForSequenceClassification::BertForSequenceClassification(const Value& hf_config, std::optional<std::uint64_t> seed)
    : BertWithHead(hf_config, "BertForSequenceClassification", /*with_pooler=*/true) {
  classifier = register_module("classifier", std::make_shared<Linear>(config_.hidden_size, config_.num_labels, true));
  if (seed) initialise(*seed);
}

at::Tensor BertForSequenceClassification::scores(const at::Tensor& hidden, const nn::RandomPlace& place) {
  const at::Tensor pooled = bert->pooled(hidden, place);  // [B, C]
  const at::Tensor kept = nn::dropout(pooled, is_training() ? config_.classifier_dropout : 0,
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

std::string bert_tensor_name(const std::string& name_in_file, const Value& hf_config) {
  std::string name = name_in_file;
  for (const auto& [old, now] : {std::pair(".gamma", ".weight"), std::pair(".beta", ".bias")})
    if (name.ends_with(old))
      name.replace(name.size() - std::string_view(old).size(), std::string_view(old).size(), now);
  for (const char* part : {"embeddings.", "encoder.", "pooler."})
    if (name.starts_with(part)) name = "bert." + name;
  const bool classifies = has_architecture(hf_config, "BertForSequenceClassification");
  const bool predicts = has_architecture(hf_config, "BertForMaskedLM");
  const Value* tied = hf_config.find("tie_word_embeddings");
  const bool own_decoder = tied && !tied->is_null() && !tied->as_bool();
  if (name == "bert.embeddings.position_ids" || name == "bert.embeddings.token_type_ids") return {};
  if (name.starts_with("bert.pooler.") && !classifies) return {};
  if (name.starts_with("classifier.") && !classifies) return {};
  if (name.starts_with("cls.predictions.") && !predicts) return {};
  if (name.starts_with("cls.seq_relationship.") || name == "cls.predictions.decoder.bias") return {};
  if (name == "cls.predictions.decoder.weight" && !own_decoder) return {};
  return name;
}

bool is_bert_head(const std::string& parameter) {
  return parameter.starts_with("cls.") || parameter.starts_with("classifier.") || parameter.starts_with("bert.pooler.");
}

}  // namespace tessera::models
