#pragma once
/// \file
/// Converts the settings into the options of the engine that divides the model over ranks, and describes the division.

#include <tessera/layout/state_bytes.h>
#include <tessera/models/causal_lm.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/recompute/checkpoint_plan.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {
struct OptimizationConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::train {

/// The policy that divides the model into units, as configured.
layout::WrapPolicy wrap_policy(const RunConfig& config, const torch::nn::Module& model);

/// `group`: the data-parallel ranks. The loss is scaled by the count of all ranks' tokens, so gradients are summed.
/// Throws InputError for wrong patterns and compression methods; class names are checked by the engine.
ShardingOptions sharding_options(const RunConfig& config, const torch::nn::Module& model, const comm::Group& group);

/// Classes of the modules in numbered lists ("h.0", "layers.3"): the model's blocks.
std::vector<std::string> block_classes(const torch::nn::Module& model);

/// The units as rows of cells, with equal units merged ("h.0-11"), headings first. `prefetches`: parameters are
/// gathered and freed, so the table also shows which unit is gathered in the background; before the first step that is
/// the next unit.
std::vector<std::vector<std::string>> unit_table(std::vector<ShardingUnit> units, bool prefetches);
/// The rows as aligned lines: names are left-aligned, numbers right-aligned.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& table);

/// "full_shard over 4 processes, offload all, parameters bf16": describes how the run divides states; empty for plain
/// data parallelism.
std::string describe_strategy(const RunConfig& config, const Sharded& sharded);

/// The strategy, the table of units and the resulting bytes, as lines; empty for plain data parallelism.
std::vector<std::string> describe_sharding(const RunConfig& config, const models::LanguageModel& model,
                                           const Sharded& sharded, std::int64_t rank);

/// Every rank has read and quantized its frozen weights on its own, and they are never communicated: throws InputError
/// if they differ between ranks. Collective if the model has quantized weights.
void check_same_quantized(const models::LanguageModel& model, const comm::Group& group);

/// State bytes of a rank of a shard group, computed from the settings alone, as in `tessera plan`.
layout::StateBytes predicted_bytes(const RunConfig& config, const models::LanguageModel& model, int shard_ranks,
                                   int rank);
/// These bytes by kind, plus the activations of a micro-batch of `tokens` tokens: {"parameters": bytes, ...,
/// "activations": bytes}.
Value predicted_memory(const RunConfig& config, const models::LanguageModel& model, int shard_ranks, std::int64_t rank,
                       std::int64_t tokens);
/// "parameters 1.0 MiB (predicted 1.0 MiB), ...": every predicted kind.
std::string compare_memory(const Value& predicted, const Value& measured);

}  // namespace tessera::train
