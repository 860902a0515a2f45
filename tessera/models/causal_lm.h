#pragma once
/// \file
/// A causal language model. A family implements hidden() and head() and describes itself; this class does the rest.

#include <tessera/models/kv_cache.h>
#include <tessera/models/language_model.h>
#include <tessera/nn/documents.h>

#include <functional>
#include <utility>

namespace tessera::models {

/// A model that predicts the next token.
class CausalLm : public LanguageModel {
 public:
  /// Each position is scored on the next token.
  data::Objective::Kind objective() const final { return data::Objective::Kind::next_token; }
  /// Sum over the scored positions of the cross-entropy of predicting labels[:, t+1] from ids[:, :t+1], times `scale`.
  /// fp32 scalar. Never builds the full logits. Throws InputError for rows longer than max_positions(). In training,
  /// for a model with depths of multi-token prediction (decoders/prediction.h), its gradients are those of loss +
  /// weight / depths * (sum of the depths' losses); take_prediction_losses() returns the depths' losses.
  at::Tensor loss(const data::Batch& batch, double scale) override;
  /// Same for ids, labels int64 [B, T] with one document per row.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels, double scale);

  /// The sum of the log-probabilities of each row's scored tokens: double [B] with gradients, on the model's device
  /// (nn/sequence_log_probabilities.h). Rows are whole, one document in each.
  at::Tensor log_probabilities(const data::Batch& batch);

  /// LanguageModel::run_stage() with the family's hidden() and head().
  at::Tensor run_stage(const data::Batch& batch, const layout::StagePart& part, const at::Tensor& input,
                       double scale) final;

  /// Returns logits(ids). A causal model does not see later tokens, so padding at the end of rows needs no mask; throws
  /// InputError for padding before tokens and for token types. (Checking a mask reads its values.)
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& token_type_ids = {}) final;
  /// fp32 logits [B, T, V] of ids int64 [B, T].
  at::Tensor logits(const at::Tensor& ids, const nn::DocumentStarts& documents = {});
  /// fp32 logits [B, V] after the last of T tokens that continue the cached ones; the cache grows by T.
  at::Tensor next_logits(const at::Tensor& ids, KvCache& cache);
  /// Same for one part of a model whose stages are on different ranks (keep_stages): the last part returns logits, the
  /// others activations. The caller must call the cache's add_tokens().
  at::Tensor next_in_stage(const at::Tensor& ids, KvCache& cache, const layout::StagePart& part,
                           const at::Tensor& input);
  /// Makes next_logits() call this function, because other processes have the other stages.
  using NextLogits = std::function<at::Tensor(const at::Tensor& ids, KvCache& cache)>;
  void set_next_logits(NextLogits next) { next_logits_ = std::move(next); }

 protected:
  using LanguageModel::LanguageModel;
  /// Hidden states after the last norm [B, T, C], or the output of context.stage. context.cache: ids continue the
  /// cached text (then there are no documents).
  virtual at::Tensor hidden(const at::Tensor& ids, ForwardContext context) = 0;
  /// Weight of the head [V, C] (the embedding's when tied).
  virtual const at::Tensor& head() const = 0;
  /// Bias of the head [V], or undefined.
  virtual at::Tensor head_bias() const { return {}; }
  /// Soft cap of the head's logits (nn/softcap.h); 0: none.
  virtual double logit_softcap() const { return 0; }

 private:
  NextLogits next_logits_;
  /// Uses ids, document_starts, part and the random key of dropout.
  at::Tensor checked_hidden(const data::Batch& batch, KvCache* cache = nullptr,
                            const layout::StagePart* stage = nullptr, const at::Tensor& input = {},
                            Predictions* predictions = nullptr);
  /// fp32 logits of hidden states [..., C].
  at::Tensor logits_of(const at::Tensor& hidden) const;
  at::Tensor loss_of(const at::Tensor& hidden, const data::Batch& batch, double scale) const;
  /// The loss at the end, in training including the gradients of multi-token prediction. stage, input: see
  /// checked_hidden().
  at::Tensor loss_at_end(const data::Batch& batch, double scale, const layout::StagePart* stage = nullptr,
                         const at::Tensor& input = {});
};

}  // namespace tessera::models
