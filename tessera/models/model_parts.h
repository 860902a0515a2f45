#pragma once
/// \file
/// Hooks for code that wraps a model's blocks (activation checkpointing): every model runs its blocks, and their
/// attention and MLP, through a replaceable function.

#include <ATen/core/Tensor.h>

#include <tessera/data/dataset.h>
#include <tessera/layout/stages.h>
#include <tessera/models/kv_cache.h>
#include <tessera/nn/attention_call.h>
#include <tessera/nn/dropout.h>
#include <tessera/nn/moe/experts.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::models {

class RouterLog;
struct Predictions;

/// A part of a model that maps one activation to another of the same sizes [B, T, C]. Parts of kind attention and mlp
/// are inside the block of the same index.
struct ModelPart {
  enum class Kind { block, attention, mlp };  ///< a whole block, or a part of it
  Kind kind = Kind::block;                    ///< attention and mlp are inside a block
  std::int64_t block = 0;                     ///< index of the block
  std::string name = {};  ///< module name, as in its parameters' names: "transformer.h.3", "transformer.h.3.attn"
};

using PartFunction = std::function<at::Tensor(const at::Tensor&)>;  ///< a part's x [B, T, C] -> [B, T, C]

/// Returns function(x), directly or wrapped. The function owns everything it needs (it may be copied and called again
/// in backward). Only called without a key/value cache.
using PartRunner = std::function<at::Tensor(const ModelPart& part, const PartFunction& function, const at::Tensor& x)>;

/// Shared by the blocks of one forward pass. Parts keep it until their backward.
struct ForwardContext {
  nn::DocumentStarts documents = {};                   ///< where documents start, in whole rows
  KvCache* cache = nullptr;                            ///< may be null
  std::shared_ptr<const PartRunner> runner = nullptr;  ///< null: parts run directly
  double embedding_noise = 0;                          ///< see LanguageModel::set_embedding_noise

  nn::RandomPlace random = {};   ///< position of the tokens passed to attention here
  std::int64_t first_token = 0;  ///< first of the tokens that this process has between layers

  std::shared_ptr<const data::SequencePart> part = nullptr;          ///< null: rows are whole
  std::shared_ptr<const nn::AttentionFunction> attention = nullptr;  ///< for parts: see LanguageModel::set_attention

  std::shared_ptr<const nn::ExpertsFunction> experts = nullptr;  ///< null: nn::experts()
  std::shared_ptr<RouterLog> routers = nullptr;                  ///< records the routers' choices; may be null
  Predictions* predictions = nullptr;                            ///< the depths' inputs and outputs; null: none

  at::Tensor images = {};  ///< pixels of the batch (data::Batch::images); undefined: none
  /// Rows [N, C] that replace token embeddings, and int64 [N] with the index of each among the B T tokens. Undefined:
  /// none. With 0 rows the module that produced them still takes part in the pass.
  at::Tensor features = {}, feature_places = {};

  /// The part of the chain that a stage's pass (LanguageModel::run_stage) runs; null: all of it.
  const layout::StagePart* stage = nullptr;
  at::Tensor input = {};  ///< input activations [B, t, C] of a stage without embeddings
  bool begins() const { return stage == nullptr || stage->embeddings; }  ///< includes the embeddings
  bool ends() const { return stage == nullptr || stage->end; }           ///< includes the layers after the blocks
  bool runs(std::int64_t block) const {
    return stage == nullptr || (block >= stage->first_block && block < stage->past_block());
  }  ///< includes this block or half of it
  bool runs_attention(std::int64_t block) const { return stage == nullptr || stage->attention_of(block); }
  bool runs_mlp(std::int64_t block) const { return stage == nullptr || stage->mlp_of(block); }

  /// Causal attention over all preceding tokens of the row, wherever they are: nn::attention() for whole rows.
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const nn::AttentionOptions& options) const;
  /// Attention of parts without causality; tokens beyond a row's length (lengths empty: none) are not seen.
  at::Tensor attend_both_ways(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<std::int64_t>& lengths, const nn::AttentionOptions& options) const;

  /// Everything in a pass that has dropout or noise, except LoRA's inputs, which have random numbers of their own.
  enum class Draw : std::uint8_t { embedding_noise, embedding, attention_weights, attention, mlp, classifier, router };
  /// The position of activations [B, t, C] between layers, for random draws.
  nn::RandomPlace between_layers() const;
  nn::RandomPlace between_layers(Draw draw, std::int64_t block = 0) const;
  /// The position of attention weights; first_head: the first one that this process computes.
  nn::RandomPlace of_weights(std::int64_t block, std::int64_t first_head) const;

  /// Embeddings of tokens [B, T, C], with noise if set.
  at::Tensor embedded(const at::Tensor& tokens) const;

  /// Runs f(x) as the part `part_named(kind, block)`.
  template <class F>
  at::Tensor run(ModelPart (*part_named)(ModelPart::Kind, std::int64_t), ModelPart::Kind kind, std::int64_t block,
                 F&& f, const at::Tensor& x) const {
    if (!runner || cache) return f(x);
    return (*runner)(part_named(kind, block), f, x);
  }
};

}  // namespace tessera::models
