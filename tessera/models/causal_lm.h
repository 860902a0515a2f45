#pragma once
/// \file
/// A causal language model. A family implements hidden() and head() and describes itself; the rest is here.

#include <tessera/models/kv_cache.h>
#include <tessera/models/language_model.h>
#include <tessera/nn/documents.h>

#include <functional>
#include <utility>

namespace tessera::models {

/// A model that predicts the next token.
class CausalLm : public LanguageModel {
 public:
  /// Labels are the tokens that follow.
  data::Objective::Kind objective() const final { return data::Objective::Kind::next_token; }
  /// Sum over the scored positions of the cross-entropy of predicting labels[:, t+1] from ids[:, :t+1], times `scale`.
  /// fp32 scalar. Never builds the full logits. Rows longer than max_positions() throw InputError. In training of a
  /// model with depths of multi-token prediction (decoders/prediction.h) its gradients are those of
  /// loss + weight / depths * (sum of the depths' losses), of which the depths' are told by take_prediction_losses().
  at::Tensor loss(const data::Batch& batch, double scale) override;
  /// The same for ids, labels int64 [B, T] with one document per row.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels, double scale);

  /// The sum of the log-probabilities of each row's scored tokens: double [B] with gradients, on the model's device
  /// (nn/sequence_log_probabilities.h). Rows are whole, one document in each.
  at::Tensor log_probabilities(const data::Batch& batch);

  /// LanguageModel::run_stage() by the family's hidden() and head().
  at::Tensor run_stage(const data::Batch& batch, const layout::StagePart& part, const at::Tensor& input,
                       double scale) final;

  /// logits(ids). A causal model sees no later tokens, so padding at the end of rows needs no mask; padding before
  /// tokens, and token types, throw InputError. (Checking a mask reads it.)
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& token_type_ids = {}) final;
  /// fp32 logits [B, T, V] of ids int64 [B, T].
  at::Tensor logits(const at::Tensor& ids, const nn::DocumentStarts& documents = {});
  /// fp32 logits [B, V] after the last of T tokens that continue the cached ones; the cache grows by T.
  at::Tensor next_logits(const at::Tensor& ids, KvCache& cache);
  /// The same in one part of a model whose stages are kept apart (keep_stages): the last part gives the logits, others
  /// activations. The cache's add_tokens() is the caller's.
  at::Tensor next_in_stage(const at::Tensor& ids, KvCache& cache, const layout::StagePart& part,
                           const at::Tensor& input);
  /// From now on next_logits() is what this gives, since other processes have the other stages.
  using NextLogits = std::function<at::Tensor(const at::Tensor& ids, KvCache& cache)>;
  void set_next_logits(NextLogits next) { next_logits_ = std::move(next); }

 protected:
  using LanguageModel::LanguageModel;
  /// Hidden states after the last norm [B, T, C], or of context.stage what it gives. context.cache: ids continue it
  /// (then there are no documents).
  virtual at::Tensor hidden(const at::Tensor& ids, ForwardContext context) = 0;
  /// Weight of the head [V, C] (the embedding's when tied).
  virtual const at::Tensor& head() const = 0;
  /// Bias of the head [V], or undefined.
  virtual at::Tensor head_bias() const { return {}; }
  /// What the head's logits are soft-capped at (nn/softcap.h); 0: they are not.
  virtual double logit_softcap() const { return 0; }

 private:
  NextLogits next_logits_;
  /// Uses ids, document_starts, part and what dropout belongs to.
  at::Tensor checked_hidden(const data::Batch& batch, KvCache* cache = nullptr,
                            const layout::StagePart* stage = nullptr, const at::Tensor& input = {},
                            Predictions* predictions = nullptr);
  /// fp32 logits of hidden states [..., C].
  at::Tensor logits_of(const at::Tensor& hidden) const;
  at::Tensor loss_of(const at::Tensor& hidden, const data::Batch& batch, double scale) const;
  /// The loss of the end, in training with the gradients of multi-token prediction. stage, input: as checked_hidden().
  at::Tensor loss_at_end(const data::Batch& batch, double scale, const layout::StagePart* stage = nullptr,
                         const at::Tensor& input = {});
};

}  // namespace tessera::models
