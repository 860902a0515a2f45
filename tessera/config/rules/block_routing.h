#pragma once
/// \file
/// Training in which not every token passes through every block, as DeepSpeed's files ask for it:
///
///   progressive_layer_drop   whole blocks are left out (Zhang and He 2020; DeepSpeed's
///                            runtime/progressive_layer_drop.py)
///   data_efficiency          data_routing.random_ltd: some blocks see a random part of the tokens (Yao et al. 2022;
///                            DeepSpeed's runtime/data_pipeline/data_routing)
///
/// What acts on the model is train/features/block_routing.h.

#include <tessera/config/rules/compression.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

struct Problems;
struct Resolved;

/// Block i of L is kept with probability 1 - i / L (1 - theta(t)), theta(t) = (1 - theta) exp(-gamma t) + theta, where
/// t + 1 steps are done, and t = 0 before: DeepSpeed's engine sets theta at the end of a step, before it counts the
/// step.
struct ProgressiveLayerDrop {
  double theta = 1;      ///< in (0, 1]; DeepSpeed's default, with which nothing is dropped
  double gamma = 0.001;  ///< at least 0
  double theta_at(std::int64_t steps) const;
  double keep_probability(std::int64_t block, std::int64_t blocks, std::int64_t steps) const;
};

/// Blocks that see a part of the tokens.
struct RandomLtd {
  std::vector<std::int64_t> layers;  ///< random_ltd_layer_id, ascending
  std::int64_t total_layers = 0;     ///< total_layer_num: blocks of the model
  std::int64_t min_value = 0, max_value = 0;
  std::int64_t require_steps = 0, seq_per_step = 0;
  std::uint64_t seed = 1234;  ///< data_efficiency.seed
  /// Tokens of a row that they see when `steps` steps are done: floor(steps / require_steps (max - min) + min), rounded
  /// down to a multiple of seq_per_step, at most max_value. Rows that are not longer are seen whole.
  std::int64_t tokens_at(std::int64_t steps) const;
};

/// The sections; nothing: not enabled. `remarks` has what is wrong and what has no effect.
std::optional<ProgressiveLayerDrop> read_progressive_layer_drop(const Value& section, CompressionRemarks& remarks);
std::optional<RandomLtd> read_data_efficiency(const Value& section, CompressionRemarks& remarks);
/// The settings' texts, which settle_block_routing() has read before; empty: nothing. Throw InputError with the first
/// problem.
std::optional<ProgressiveLayerDrop> parse_progressive_layer_drop(const std::string& text);
std::optional<RandomLtd> parse_data_efficiency(const std::string& text);

/// Makes each of both settings the text of its section, whatever it was: a file of the section or of a DeepSpeed
/// configuration with it, or the section itself; empty where it is not enabled.
void settle_block_routing(Resolved& resolved, Problems& problems);

/// What they cannot stand beside.
void validate_block_routing(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
