#pragma once
/// \file
/// Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2; Megatron-LM's --mtp-num-layers,
/// core/transformer/multi_token_prediction.py): behind the model stand D depths, each a block with a norm of the hidden
/// states, a norm of embeddings and a map of both to one width before it, and a norm after it. Depth k (from 1) takes
/// the hidden states of depth k - 1 (of the model, after its last norm, for k = 1) and the embedding of the token k
/// positions ahead, and predicts the token k + 1 ahead with the model's own head. The embedding is the model's, too. In
/// a pipeline the depths belong to the last stage, which then has the embedding beside the first one, as Megatron-LM's
/// last stage has (LanguageModel::tied_parameter).

#include <torch/nn/module.h>

#include <tessera/data/dataset.h>
#include <tessera/models/layers.h>
#include <tessera/models/norm.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::models {

/// What a pass is asked of the depths, and what they give.
struct Predictions {
  struct Depth {
    at::Tensor ids;          ///< int64 [B, T]: the tokens that it is told; 0 beyond the end of a row
    at::Tensor labels;       ///< int64 [B, T]: what position t predicts, at t; -100: nothing
    at::Tensor hidden = {};  ///< [B, T, C] after its norm: what the head takes
  };
  std::vector<Depth> depths;
};

/// The tokens and labels of each depth for whole rows. Position t of depth k is scored where batch.labels[t + k + 1] is
/// scored and lies in the same document as t: the first token of a document is foretold by none of the one before it.
Predictions further_tokens(const data::Batch& batch, std::int64_t depths);

/// The last norm of a depth, under the name that Hugging Face's files have for it: shared_head.norm.
struct SharedHead : torch::nn::Module {
  SharedHead(const NormForm& form, std::int64_t width);
  std::shared_ptr<Norm> norm;
};

/// What a depth has besides its block; the block registers it: enorm, hnorm, eh_proj, shared_head.
struct PredictionEnds {
  PredictionEnds(const NormForm& form, std::int64_t width);
  /// Hidden states and embeddings [B, T, C] -> [B, T, C], what the block reads. The embeddings come first in
  /// eh_proj's columns. `place`: where they lie, for an adapter's dropout.
  at::Tensor begin(const at::Tensor& hidden, const at::Tensor& embedded, const nn::RandomPlace& place) const;
  at::Tensor end(const at::Tensor& x) const { return head->norm->forward(x); }

  std::shared_ptr<Norm> of_embedding, of_hidden;
  std::shared_ptr<Linear> projection;  ///< [C, 2 C]
  std::shared_ptr<SharedHead> head;
};

}  // namespace tessera::models
