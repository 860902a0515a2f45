#pragma once
/// \file
/// models/bert/: the encoder family: pretraining, classification, sentence embeddings.
///
/// BERT (Devlin et al. 2019), following transformers/models/bert/modeling_bert.py: the encoder and its heads for masked
/// language modelling and for classification. (Sentence embeddings: sentence_encoder.h.) B batch, T tokens, C =
/// hidden_size, H = num_attention_heads, V = vocab_size.

#include <tessera/architectures/spec.h>
#include <tessera/models/activation.h>
#include <tessera/models/language_model.h>
#include <tessera/models/layers.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::models {

using architectures::ModelSpec;

/// Inputs of every layer in one forward pass, besides the hidden states.
struct BertContext : ForwardContext {
  at::Tensor mask = {};  ///< [B, 1, 1, T]: 0 for visible keys, -infinity for others; undefined: all are visible, or
                         ///< rows are parts
  /// Number of visible tokens at the start of each row; empty: all, or as in the mask. If rows are parts, those of
  /// whole rows.
  std::vector<std::int64_t> lengths = {};
};

struct BertEmbeddings : torch::nn::Module {
  explicit BertEmbeddings(const ModelSpec& spec);
  /// ids, types int64 [B, T] (types undefined: all 0) -> [B, T, C].
  /// Sets the context's values for the following layers.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types, ForwardContext& context);
  /// Drops everything except the word embeddings.
  void keep_words_only();

  std::shared_ptr<Table> word_embeddings, position_embeddings, token_type_embeddings;
  std::shared_ptr<LayerNorm> norm;  ///< "LayerNorm"
  std::int64_t pad_token_id;        ///< its row gets no gradient from the lookup, as with padding_idx
  double dropout;
};

struct BertSelfAttention : torch::nn::Module {
  BertSelfAttention(const ModelSpec& spec, std::int64_t index);
  /// x [B, T, C] -> [B, T, C].
  at::Tensor forward(const at::Tensor& x, const BertContext& context);

  std::shared_ptr<Linear> query, key, value;
  std::int64_t index, heads;
  double dropout;
};

/// dense, dropout and the norm of the sum with the residual: the end of both halves of a layer.
struct BertOutput : torch::nn::Module {
  /// `draw`: attention or mlp, the half of the layer that it ends.
  BertOutput(const ModelSpec& spec, std::int64_t in, std::int64_t index, ForwardContext::Draw draw);
  at::Tensor forward(const at::Tensor& h, const at::Tensor& residual, const ForwardContext& context);

  std::shared_ptr<Linear> dense;
  std::shared_ptr<LayerNorm> norm;
  std::int64_t index;
  ForwardContext::Draw draw;
  double dropout;
};

struct BertAttention : torch::nn::Module {
  BertAttention(const ModelSpec& spec, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const BertContext& context) {
    return output->forward(self->forward(x, context), x, context);
  }

  std::shared_ptr<BertSelfAttention> self;
  std::shared_ptr<BertOutput> output;
};

struct BertIntermediate : torch::nn::Module {
  explicit BertIntermediate(const ModelSpec& spec);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context);

  std::shared_ptr<Linear> dense;
  Activation activation;
};

struct BertLayer : torch::nn::Module {
  BertLayer(const ModelSpec& spec, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const std::shared_ptr<const BertContext>& context);

  std::shared_ptr<BertAttention> attention;
  std::shared_ptr<BertIntermediate> intermediate;
  std::shared_ptr<BertOutput> output;
  std::int64_t index;
};

struct BertModel : torch::nn::Module {
  /// with_pooler: registers pooler.dense, which only classification uses.
  explicit BertModel(const ModelSpec& spec, bool with_pooler = false);
  /// ids int64 [B, T]; types int64 [B, T] or undefined (all 0); seen bool [B, T], false at padding, or undefined (no
  /// padding). Returns hidden states [B, T, C]; those at padding are meaningless.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types = {}, const at::Tensor& seen = {},
                     BertContext context = {});
  /// Drops the modules that are in none of `parts`. `tied`: the end also needs the word embeddings.
  void drop_all_but(const std::vector<layout::StagePart>& parts, bool tied);
  /// tanh(dense(first token)): hidden [B, T, C] -> [B, C].
  at::Tensor pooled(const at::Tensor& hidden, const nn::RandomPlace& place = {});

  std::shared_ptr<BertEmbeddings> embeddings;
  std::vector<std::shared_ptr<BertLayer>> layer;  ///< "encoder.layer"; null, like the rest, in other stages
  std::int64_t positions;
  std::shared_ptr<Linear> pooler;  ///< "pooler.dense"; may be null
};

/// Common base of both heads.
class BertWithHead : public LanguageModel {
 public:
  std::vector<ModelPart> parts() const override;
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& token_type_ids = {}) override;
  at::Tensor loss(const data::Batch& batch, double scale) override;
  at::Tensor run_stage(const data::Batch& batch, const layout::StagePart& part, const at::Tensor& input,
                       double scale) override;

  std::shared_ptr<BertModel> bert;

 protected:
  /// Applies the head: hidden states [B, T, C], or [N, C] for a head per token -> fp32 logits. `place`: position of the
  /// rows, for the head's dropout (for N tokens: of the first row, so dropout depends on how rows are divided).
  virtual at::Tensor scores(const at::Tensor& hidden, const nn::RandomPlace& place) = 0;
  /// loss() of a batch with these hidden states.
  virtual at::Tensor loss_of(const at::Tensor& hidden, const data::Batch& batch, const ForwardContext& context,
                             double scale) = 0;
  BertWithHead(const Value& hf_config, const char* architecture, bool with_pooler);
  /// Initializes weights from N(0, initializer_range); biases and the padding token's embedding are 0, norms 1
  /// (_init_weights).
  void initialise(std::uint64_t seed);
  /// The hidden states of a batch; padding is not visible.
  at::Tensor hidden(const data::Batch& batch, const ForwardContext& context);
};

struct BertLMPredictionHead;

class BertForMaskedLM : public BertWithHead {
 public:
  /// Weights are initialized from `seed`; without a seed they stay uninitialized.
  BertForMaskedLM(const Value& hf_config, std::optional<std::uint64_t> seed);
  data::Objective::Kind objective() const override { return data::Objective::Kind::masked_token; }

  std::shared_ptr<BertLMPredictionHead> predictions;  ///< "cls.predictions"

 protected:
  void drop_all_but(const std::vector<layout::StagePart>& parts) override;
  at::Tensor scores(const at::Tensor& hidden, const nn::RandomPlace& place) override;
  /// Only positions whose label is not -100 are scored, and only their logits are computed.
  at::Tensor loss_of(const at::Tensor& hidden, const data::Batch& batch, const ForwardContext& context,
                     double scale) override;
};

/// The class of row b of a batch is labels[b, 0].
class BertForSequenceClassification : public BertWithHead {
 public:
  BertForSequenceClassification(const Value& hf_config, std::optional<std::uint64_t> seed);
  data::Objective::Kind objective() const override { return data::Objective::Kind::row_class; }

  std::shared_ptr<Linear> classifier;

 protected:
  at::Tensor scores(const at::Tensor& hidden, const nn::RandomPlace& place) override;
  void drop_all_but(const std::vector<layout::StagePart>& parts) override;
  at::Tensor loss_of(const at::Tensor& hidden, const data::Batch& batch, const ForwardContext& context,
                     double scale) override;
};

/// BERT's head for masked language modelling: transform, then the word embeddings (or a separate matrix) with a bias.
struct BertLMPredictionHead : torch::nn::Module {
  explicit BertLMPredictionHead(const ModelSpec& spec);
  /// h [..., C] -> [..., C], before the product with the embeddings.
  at::Tensor transform(const at::Tensor& h, const nn::RandomPlace& place);

  std::shared_ptr<Linear> dense;    ///< "transform.dense"
  std::shared_ptr<LayerNorm> norm;  ///< "transform.LayerNorm"
  std::shared_ptr<Table> decoder;   ///< null when tied
  at::Tensor bias;                  ///< [V]
  Activation activation;
};

/// True for tokens: bool [B, T] for rows with these lengths; undefined without padding.
at::Tensor seen_tokens(const std::vector<std::int64_t>& lengths, std::int64_t length, c10::Device device);

}  // namespace tessera::models
