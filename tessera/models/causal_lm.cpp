#include <tessera/models/causal_lm.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/models/decoders/prediction.h>
#include <tessera/nn/nn.h>
#include <algorithm>
#include <limits>

namespace tessera::models {
namespace {

/// Length of the longest document of a batch [rows, length].
std::int64_t longest(const nn::DocumentStarts& documents, std::int64_t rows, std::int64_t length) {
  if (documents.empty()) return length;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < documents.size(); ++i)
    most = std::max(most, (i + 1 < documents.size() ? documents[i + 1] : rows * length) - documents[i]);
  return most;
}

}  // namespace

at::Tensor CausalLm::checked_hidden(const data::Batch& batch, KvCache* cache, const layout::StagePart* stage,
                                    const at::Tensor& input, Predictions* predictions) {
  const at::Tensor& ids = batch.ids;
  const nn::DocumentStarts& documents = batch.document_starts;
  const data::SequencePart* const part = batch.part.get();
  TESSERA_CHECK(ids.dim() == 2, "ids must be [B, T]; they have ", ids.dim(), " dimensions");
  nn::check_documents(documents, ids.size(0), part ? part->length : ids.size(1));
  const std::int64_t tokens =
      part ? part->longest : (cache ? cache->tokens() : 0) + longest(documents, ids.size(0), ids.size(1));
  if (tokens > max_positions())
    throw InputError(concat("a sequence of ", tokens, " tokens does not fit the model's ", max_positions(),
                            " positions; use a shorter block_size or prompt"));
  ForwardContext context = context_of(batch);
  context.documents = documents;
  context.cache = cache;
  context.stage = stage;
  context.input = input;
  context.predictions = predictions;
  if (cache) context.embedding_noise = 0;
  if (stage && stage->end && stage->blocks == 0 && !stage->embeddings) nn::begin_with(head(), input);
  if (!cache) context.routers = router_log(stage, batch);
  const std::shared_ptr<RouterLog> routers = context.routers;
  const at::Tensor result = hidden(ids, std::move(context));
  return routers ? routers->finished(result) : result;
}

at::Tensor CausalLm::loss_of(const at::Tensor& hidden, const data::Batch& batch, double scale) const {
  return nn::linear_cross_entropy(hidden, head(), batch.part ? batch.part->targets : batch.labels, scale,
                                  {.label_smoothing = label_smoothing(),
                                   .place = batch.part ? nn::LabelPlace::own : nn::LabelPlace::next,
                                   .softcap = logit_softcap()},
                                  head_bias());
}

at::Tensor CausalLm::logits_of(const at::Tensor& hidden) const {
  return nn::softcap(nn::linear(hidden, head(), head_bias(), nn::WeightLayout::out_in).to(at::kFloat), logit_softcap());
}

at::Tensor CausalLm::loss_at_end(const data::Batch& batch, double scale, const layout::StagePart* stage,
                                 const at::Tensor& input) {
  if (!is_training() || !predicts()) return loss_of(checked_hidden(batch, nullptr, stage, input), batch, scale);
  if (batch.part)
    throw InputError(
        "multi-token prediction (mtp_num_layers) reads tokens further ahead in the same row, which with --cp_size "
        "above 1 are on other processes: use --cp_size 1, or --mtp_loss_scaling_factor 0 to train without it");
  Predictions predictions = further_tokens(batch, prediction_depths());
  const at::Tensor main = loss_of(checked_hidden(batch, nullptr, stage, input, &predictions), batch, scale);
  std::vector<at::Tensor> losses;
  at::Tensor sum;
  for (const Predictions::Depth& depth : predictions.depths) {
    losses.push_back(nn::linear_cross_entropy(
        depth.hidden, head(), depth.labels, scale,
        {.label_smoothing = label_smoothing(), .place = nn::LabelPlace::own, .softcap = logit_softcap()}, head_bias()));
    sum = sum.defined() ? sum + losses.back() : losses.back();
  }
  add_prediction_losses(losses);
  // The value is that of the main loss; its gradient reaches the depths' losses with their weight.
  return main + (sum - sum.detach()) * (prediction_weight() / static_cast<double>(losses.size()));
}

at::Tensor CausalLm::loss(const data::Batch& batch, double scale) { return loss_at_end(batch, scale); }

at::Tensor CausalLm::log_probabilities(const data::Batch& batch) {
  return nn::sequence_log_probabilities(checked_hidden(batch), head(), batch.labels, logit_softcap(), head_bias());
}

at::Tensor CausalLm::run_stage(const data::Batch& batch, const layout::StagePart& part, const at::Tensor& input,
                               double scale) {
  TESSERA_CHECK(part.embeddings != input.defined(), "a stage of ", layout::text_of(part),
                part.embeddings ? " begins with tokens, not with activations" : " needs the activations before it");
  return part.end ? loss_at_end(batch, scale, &part, input) : checked_hidden(batch, nullptr, &part, input);
}

at::Tensor CausalLm::loss(const at::Tensor& ids, const at::Tensor& labels, double scale) {
  data::Batch batch;
  batch.ids = ids;
  batch.labels = labels;
  return loss(batch, scale);
}

at::Tensor CausalLm::forward(const at::Tensor& ids, const at::Tensor& attention_mask,
                             const at::Tensor& token_type_ids) {
  if (token_type_ids.defined()) throw InputError("forward: a causal model has no token types: do not pass them");
  if (attention_mask.defined()) {
    if (attention_mask.sizes() != ids.sizes())
      throw InputError(concat("forward: attention_mask is ", c10::str(attention_mask.sizes()), ", ids are ",
                              c10::str(ids.sizes()), ": both must be [B, T]"));
    if (attention_mask.ne(0).to(at::kChar).diff(1, 1).gt(0).any().item<bool>())
      throw InputError(
          "forward: attention_mask hides tokens that precede others: pad rows at their end, which a causal model never "
          "sees (padding_side right), or pack several documents in a row with logits(ids, documents)");
  }
  return logits(ids);
}

at::Tensor CausalLm::logits(const at::Tensor& ids, const nn::DocumentStarts& documents) {
  data::Batch batch;
  batch.ids = ids;
  batch.document_starts = documents;
  return logits_of(checked_hidden(batch));
}

at::Tensor CausalLm::next_logits(const at::Tensor& ids, KvCache& cache) {
  if (next_logits_) return next_logits_(ids, cache);
  static constexpr layout::StagePart whole = {
      .embeddings = true, .end = true, .first_block = 0, .blocks = std::numeric_limits<std::int64_t>::max()};
  const at::Tensor logits = next_in_stage(ids, cache, whole, {});
  cache.add_tokens(ids.size(1));
  return logits;
}

at::Tensor CausalLm::next_in_stage(const at::Tensor& ids, KvCache& cache, const layout::StagePart& part,
                                   const at::Tensor& input) {
  data::Batch batch;
  batch.ids = ids;
  const at::Tensor hidden = checked_hidden(batch, &cache, &part, input);
  if (!part.end) return hidden;
  return logits_of(hidden.select(1, -1));  // [B, V]
}

}  // namespace tessera::models
