#pragma once
/// \file
/// From the settings to the engine that divides the model over ranks, and what the run says about it.

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

/// Which modules of the model are units, as the configuration chooses them.
layout::WrapPolicy wrap_policy(const RunConfig& config, const torch::nn::Module& model);

/// `group`: the data-parallel ranks. The loss is scaled by the count of all ranks' tokens, so gradients are summed.
/// Throws InputError for wrong patterns and compression methods; class names are checked by the engine.
ShardingOptions sharding_options(const RunConfig& config, const torch::nn::Module& model, const comm::Group& group);

/// Classes of the modules that stand in numbered lists ("h.0", "layers.3"): the model's blocks.
std::vector<std::string> block_classes(const torch::nn::Module& model);

/// The units as rows of cells, equal ones in one row ("h.0-11"), the headings first. `prefetches`: whole parameters
/// come and go, so it is told what is gathered meanwhile; before the first step that is the next unit.
std::vector<std::vector<std::string>> unit_table(std::vector<ShardingUnit> units, bool prefetches);
/// The rows as lines, aligned: names to the left, numbers to the right.
std::vector<std::string> aligned(const std::vector<std::vector<std::string>>& table);

/// "full_shard over 4 processes, offload all, parameters bf16": what the run divides; empty for plain data parallelism.
std::string describe_strategy(const RunConfig& config, const Sharded& sharded);

/// The strategy, the table of units and the bytes that follow from it, as lines; none for plain data parallelism.
std::vector<std::string> describe_sharding(const RunConfig& config, const models::LanguageModel& model,
                                           const Sharded& sharded, std::int64_t rank);

/// Every rank has read and quantized its frozen weights for itself, and nobody sends them: throws InputError where they
/// are not the same on all. Collective where the model has quantized weights.
void check_same_quantized(const models::LanguageModel& model, const comm::Group& group);

/// State bytes of a rank of a shard group as they follow from the settings alone: the arithmetic that a plan would use.
layout::StateBytes predicted_bytes(const RunConfig& config, const models::LanguageModel& model, int shard_ranks,
                                   int rank);
/// These by kind, and the activations of a micro-batch of so many tokens: {"parameters": bytes, ..., "activations":
/// bytes}.
Value predicted_memory(const RunConfig& config, const models::LanguageModel& model, int shard_ranks, std::int64_t rank,
                       std::int64_t tokens);
/// "parameters 1.0 MiB (predicted 1.0 MiB), ...": for every kind that was predicted.
std::string compare_memory(const Value& predicted, const Value& measured);

}  // namespace tessera::train
