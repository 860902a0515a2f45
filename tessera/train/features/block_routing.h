#pragma once
/// \file
/// Blocks that are skipped in a step and blocks that see only some of the tokens (--progressive_layer_drop and
/// --data_efficiency; sources and schedules: config/rules/block_routing.h). In training only: evaluation and generation
/// run every block on every token.
///
/// A skipped block is the identity; there is one draw per block and step. A block that is kept with probability p < 1
/// computes x + (f(x) - x) / p, so that the mean over the draws is f(x), the block of evaluation. (DeepSpeedExamples'
/// BERT divides what attention and the MLP add by p, separately; DeepSpeed itself leaves this to the model.)
///
/// Under random_ltd a block sees k tokens of each row, in order, drawn for each step, block and row; the other tokens
/// pass through unchanged. Every draw is a function of (seed, step, block, row) alone, so it does not depend on which
/// rank computes what, and a resumed run draws the same as an uninterrupted one.
///
/// Every process skips the same blocks. Their parameters get gradients of 0, as if the block had been multiplied by 0,
/// and sharded ones are still gathered: collectives are the same in every step under any strategy; only computation is
/// saved. (As with DeepSpeed, the optimizer's moments and weight decay still apply.)

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
  /// `seed`: keys the draws of whole blocks. Throws InputError for a model whose blocks cannot be skipped (with
  /// experts); for random_ltd also if the number of layers does not match, or if tokens do not carry their position
  /// with them (any model but GPT-2).
  BlockRouting(const models::LanguageModel& model, std::optional<config::ProgressiveLayerDrop> drop,
               std::optional<config::RandomLtd> ltd, std::uint64_t seed);

  /// The draws that follow belong to the step after `step` optimizer steps.
  void set_step(std::int64_t step) { step_ = step; }
  /// Sets the rows of the next pass in training. Throws InputError under random_ltd for packed rows, whose documents do
  /// not see each other.
  void begin_batch(const data::Batch& batch);

  /// Whether the block is kept in this step, and with which probability.
  bool keeps(std::int64_t block) const;
  double keep_probability(std::int64_t block) const;
  /// Indices of the tokens that the block sees, ascending: int64 [rows, k], k < length, on the CPU; undefined: all.
  at::Tensor kept_tokens(std::int64_t block, std::int64_t rows, std::int64_t length) const;

  /// Runs the block on x [B, T, C] in training; function(x) in evaluation.
  at::Tensor run(const models::ModelPart& part, const models::PartFunction& function, const at::Tensor& x) const;

  /// Describes the active settings, one per line.
  std::vector<std::string> describe() const;

 private:
  std::optional<config::ProgressiveLayerDrop> drop_;
  std::optional<config::RandomLtd> ltd_;
  std::uint64_t seed_;
  std::vector<std::shared_ptr<torch::nn::Module>> blocks_;  ///< by index
  std::int64_t step_ = 0, first_row_ = 0;
};

/// Routes the model's blocks as the settings require, with `inner` called inside. Replaces the model's part runner.
/// Returns nullptr, replacing nothing, if the settings ask for no routing.
std::shared_ptr<BlockRouting> route_blocks(models::LanguageModel& model, const OptimizationConfig& config,
                                           models::PartRunner inner);

/// Feature for --progressive_layer_drop and --data_efficiency; null: both are off.
std::unique_ptr<RunFeature> make_block_routing(const RunConfig& config);

}  // namespace tessera::train
