#pragma once
/// \file
/// Training in which not every token passes through every block, as specified in DeepSpeed's files:
///
///   progressive_layer_drop   whole blocks are skipped (Zhang and He 2020; DeepSpeed's
///                            runtime/progressive_layer_drop.py)
///   data_efficiency          data_routing.random_ltd: some blocks process a random subset of the tokens (Yao et al.
///                            2022; DeepSpeed's runtime/data_pipeline/data_routing)
///
/// Applied to the model by train/features/block_routing.h.

#include <tessera/config/rules/compression.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

struct Problems;
struct Resolved;

/// Block i of L is kept with probability 1 - i / L (1 - theta(t)), where theta(t) = (1 - theta) exp(-gamma t) + theta
/// and t + 1 steps are done (t = 0 before the first): DeepSpeed's engine sets theta at the end of a step, before it
/// counts the step.
struct ProgressiveLayerDrop {
  double theta = 1;      ///< in (0, 1]; 1, DeepSpeed's default, drops nothing
  double gamma = 0.001;  ///< at least 0
  double theta_at(std::int64_t steps) const;
  double keep_probability(std::int64_t block, std::int64_t blocks, std::int64_t steps) const;
};

/// Random layerwise token dropping: blocks that process a subset of the tokens.
struct RandomLtd {
  std::vector<std::int64_t> layers;  ///< random_ltd_layer_id, ascending
  std::int64_t total_layers = 0;     ///< total_layer_num: number of blocks of the model
  std::int64_t min_value = 0, max_value = 0;
  std::int64_t require_steps = 0, seq_per_step = 0;
  std::uint64_t seed = 1234;  ///< data_efficiency.seed
  /// Tokens per row that those blocks process after `steps` steps: floor(steps / require_steps (max - min) + min),
  /// rounded down to a multiple of seq_per_step, at most max_value. Shorter rows are processed whole.
  std::int64_t tokens_at(std::int64_t steps) const;
};

/// Parses the sections; nullopt: not enabled. Problems and parts without effect are added to `remarks`.
std::optional<ProgressiveLayerDrop> read_progressive_layer_drop(const Value& section, CompressionRemarks& remarks);
std::optional<RandomLtd> read_data_efficiency(const Value& section, CompressionRemarks& remarks);
/// Parse the settings' texts after settle_block_routing(); empty: nullopt. Throw InputError with the first problem.
std::optional<ProgressiveLayerDrop> parse_progressive_layer_drop(const std::string& text);
std::optional<RandomLtd> parse_data_efficiency(const std::string& text);

/// Replaces both settings by the text of their sections. Each setting may be a file with the section or with a
/// DeepSpeed configuration that contains it, or the section itself. A setting whose section is not enabled becomes
/// empty.
void settle_block_routing(Resolved& resolved, Problems& problems);

/// Adds settings that block routing cannot be combined with to `problems`.
void validate_block_routing(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
