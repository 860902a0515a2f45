#pragma once
/// \file
/// Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2; Megatron-LM's --mtp-num-layers,
/// core/transformer/multi_token_prediction.py): the model is followed by D depths, each a block preceded by a norm of
/// the hidden states, a norm of embeddings and a map from both to one width, and followed by a norm. Depth k (from 1)
/// takes the hidden states of depth k - 1 (of the model, after its last norm, for k = 1) and the embedding of the token
/// k positions ahead, and predicts the token k + 1 positions ahead with the model's own head. The embedding is also the
/// model's. In a pipeline the depths belong to the last stage, which then shares the embedding with the first one, as
/// in Megatron-LM (LanguageModel::tied_parameter).

#include <torch/nn/module.h>

#include <tessera/data/dataset.h>
#include <tessera/models/layers.h>
#include <tessera/models/norm.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::models {

/// Inputs and outputs of the depths in one pass.
struct Predictions {
  struct Depth {
    at::Tensor ids;          ///< int64 [B, T]: its input tokens; 0 beyond the end of a row
    at::Tensor labels;       ///< int64 [B, T]: target of position t, at t; -100: none
    at::Tensor hidden = {};  ///< [B, T, C] after its norm: input of the head
  };
  std::vector<Depth> depths;
};

/// The tokens and labels of each depth for whole rows. Position t of depth k is scored if batch.labels[t + k + 1] is
/// scored and belongs to the same document as t: the first token of a document is never predicted from the previous
/// one.
Predictions further_tokens(const data::Batch& batch, std::int64_t depths);

/// The last norm of a depth, with its name in Hugging Face's files: shared_head.norm.
struct SharedHead : torch::nn::Module {
  SharedHead(const NormForm& form, std::int64_t width);
  std::shared_ptr<Norm> norm;
};

/// The members of a depth besides its block, registered by the block: enorm, hnorm, eh_proj, shared_head.
struct PredictionEnds {
  PredictionEnds(const NormForm& form, std::int64_t width);
  /// Hidden states and embeddings [B, T, C] -> [B, T, C], the input of the block. The embeddings come first in
  /// eh_proj's columns. `place`: their position, for an adapter's dropout.
  at::Tensor begin(const at::Tensor& hidden, const at::Tensor& embedded, const nn::RandomPlace& place) const;
  at::Tensor end(const at::Tensor& x) const { return head->norm->forward(x); }

  std::shared_ptr<Norm> of_embedding, of_hidden;
  std::shared_ptr<Linear> projection;  ///< [C, 2 C]
  std::shared_ptr<SharedHead> head;
};

}  // namespace tessera::models
