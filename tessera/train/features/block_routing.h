#pragma once
/// \file
/// Blocks that are left out of a step, and blocks that see a part of the tokens (--progressive_layer_drop and
/// --data_efficiency; config/rules/block_routing.h has the sources and the schedules). In training only: evaluation and
/// generation run every block on every token.
///
/// A block that is left out is the identity, one draw per block and step. A block that is kept with probability p < 1
/// is x + (f(x) - x) / p, so that the mean over the draws is f(x), the block of evaluation. (DeepSpeedExamples' BERT
/// divides what attention and the MLP add by p, each; DeepSpeed itself leaves this to the model.)
///
/// Under random_ltd a block sees k tokens of each row, in their order, drawn for each step, block and row; the others
/// pass by unchanged. Each kind of draw is a function of (seed, step, block, row) and of nothing else, so it does not
/// depend on who computes what, and a resumed run draws what the uninterrupted one would have drawn.
///
/// Every process leaves out the same blocks. Their parameters get gradients of 0, as if the block had been multiplied
/// by 0, and sharded ones are gathered all the same: collectives are those of every other step under any strategy, what
/// is saved is the computation. (As with DeepSpeed, the optimizer's moments and weight decay go on.)

#include <tessera/config/rules/block_routing.h>
#include <tessera/models/language_model.h>

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {
struct OptimizationConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

class RunFeature;

class BlockRouting {
 public:
  /// `seed`: what the draws of whole blocks belong to. Throws InputError for a model whose blocks cannot be left out
  /// (with experts), and for random_ltd for one with other layers than it says, or in which tokens do not carry their
  /// position with them (any but GPT-2).
  BlockRouting(const models::LanguageModel& model, std::optional<config::ProgressiveLayerDrop> drop,
               std::optional<config::RandomLtd> ltd, std::uint64_t seed);

  /// `step` optimizer steps are done: what follows is drawn for the next one.
  void set_step(std::int64_t step) { step_ = step; }
  /// The rows that the next pass in training has. Throws InputError under random_ltd for packed rows, whose documents
  /// do not see each other.
  void begin_batch(const data::Batch& batch);

  /// Whether the block is kept in this step, and with what probability.
  bool keeps(std::int64_t block) const;
  double keep_probability(std::int64_t block) const;
  /// Indices of the tokens that the block sees, ascending: int64 [rows, k], k < length, on the CPU; undefined: all.
  at::Tensor kept_tokens(std::int64_t block, std::int64_t rows, std::int64_t length) const;

  /// The block of x [B, T, C] in training; function(x) in evaluation.
  at::Tensor run(const models::ModelPart& part, const models::PartFunction& function, const at::Tensor& x) const;

  /// A line for each of both.
  std::vector<std::string> describe() const;

 private:
  std::optional<config::ProgressiveLayerDrop> drop_;
  std::optional<config::RandomLtd> ltd_;
  std::uint64_t seed_;
  std::vector<std::shared_ptr<torch::nn::Module>> blocks_;  ///< by index
  std::int64_t step_ = 0, first_row_ = 0;
};

/// As the settings say, from now on: the model's blocks run through it, and through `inner` inside of it. Replaces the
/// model's part runner. nullptr, and nothing is replaced: the settings ask for nothing.
std::shared_ptr<BlockRouting> route_blocks(models::LanguageModel& model, const OptimizationConfig& config,
                                           models::PartRunner inner);

/// --progressive_layer_drop and --data_efficiency in a run; null: both are off.
std::unique_ptr<RunFeature> make_block_routing(const RunConfig& config);

}  // namespace tessera::train
