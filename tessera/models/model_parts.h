#pragma once
/// \file
/// The seam at which others (activation checkpointing) get hold of a model's blocks: every model runs its blocks, and
/// the attention and the MLP in them, through a function that can be replaced.

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
/// lie inside the block of the same index.
struct ModelPart {
  enum class Kind { block, attention, mlp };  ///< a whole block, or a part of it
  Kind kind = Kind::block;                    ///< attention and mlp lie inside a block
  std::int64_t block = 0;                     ///< index of the block
  std::string name = {};  ///< the module's, as in its parameters' names: "transformer.h.3", "transformer.h.3.attn"
};

using PartFunction = std::function<at::Tensor(const at::Tensor&)>;  ///< a part's x [B, T, C] -> [B, T, C]

/// Returns function(x), at once or with something around it. The function owns all it needs (it may be copied and
/// called again in backward). Called only when there is no key/value cache.
using PartRunner = std::function<at::Tensor(const ModelPart& part, const PartFunction& function, const at::Tensor& x)>;

/// What the blocks of one forward pass share. Parts keep it until their backward.
struct ForwardContext {
  nn::DocumentStarts documents = {};                   ///< starts in whole rows
  KvCache* cache = nullptr;                            ///< or null
  std::shared_ptr<const PartRunner> runner = nullptr;  ///< null: parts run directly
  double embedding_noise = 0;                          ///< see LanguageModel::set_embedding_noise

  nn::RandomPlace random = {};   ///< where the tokens lie that attention is given here
  std::int64_t first_token = 0;  ///< between layers this process goes on with a part of them, from here on

  std::shared_ptr<const data::SequencePart> part = nullptr;          ///< null: the tokens are whole rows
  std::shared_ptr<const nn::AttentionFunction> attention = nullptr;  ///< for parts: see LanguageModel::set_attention

  std::shared_ptr<const nn::ExpertsFunction> experts = nullptr;  ///< null: nn::experts()
  std::shared_ptr<RouterLog> routers = nullptr;                  ///< where routers tell what they chose; or null
  Predictions* predictions = nullptr;                            ///< what is asked of further depths; null: nothing

  at::Tensor images = {};  ///< a batch's pixels (data::Batch::images); undefined: it has none
  /// What a model puts in the place of its tokens' embeddings: rows [N, C], and int64 [N] saying which of the B T
  /// tokens they are for. Undefined: nothing. With no rows in them, what they come from takes part in the pass.
  at::Tensor features = {}, feature_places = {};

  /// A stage's pass (LanguageModel::run_stage): what of the chain is run; null: all of it.
  const layout::StagePart* stage = nullptr;
  at::Tensor input = {};  ///< where the stage has no embeddings: the activations [B, t, C] that it begins with
  bool begins() const { return stage == nullptr || stage->embeddings; }  ///< the embeddings are part of it
  bool ends() const { return stage == nullptr || stage->end; }           ///< so is what follows the blocks
  bool runs(std::int64_t block) const {
    return stage == nullptr || (block >= stage->first_block && block < stage->past_block());
  }  ///< so is this block, or half of it
  bool runs_attention(std::int64_t block) const { return stage == nullptr || stage->attention_of(block); }
  bool runs_mlp(std::int64_t block) const { return stage == nullptr || stage->mlp_of(block); }

  /// Causal attention of all that a token sees of its row, be it here or not: nn::attention() of whole rows.
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const nn::AttentionOptions& options) const;
  /// Attention of parts without causality, where a row's tokens beyond its length (lengths empty: none) are not seen.
  at::Tensor attend_both_ways(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<std::int64_t>& lengths, const nn::AttentionOptions& options) const;

  /// Everything that is dropped in a pass, apart from LoRA's inputs, which have numbers of their own.
  enum class Draw : std::uint8_t { embedding_noise, embedding, attention_weights, attention, mlp, classifier, router };
  /// Where activations [B, t, C] between layers lie, for what is drawn there.
  nn::RandomPlace between_layers() const;
  nn::RandomPlace between_layers(Draw draw, std::int64_t block = 0) const;
  /// Where attention weights lie; first_head: the first that this process computes.
  nn::RandomPlace of_weights(std::int64_t block, std::int64_t first_head) const;

  /// Embeddings of tokens [B, T, C], with their noise.
  at::Tensor embedded(const at::Tensor& tokens) const;

  /// f(x) as the part `part_named(kind, block)`.
  template <class F>
  at::Tensor run(ModelPart (*part_named)(ModelPart::Kind, std::int64_t), ModelPart::Kind kind, std::int64_t block,
                 F&& f, const at::Tensor& x) const {
    if (!runner || cache) return f(x);
    return (*runner)(part_named(kind, block), f, x);
  }
};

}  // namespace tessera::models
