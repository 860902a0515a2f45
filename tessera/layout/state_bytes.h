#pragma once
/// \file
/// How many bytes of training state a rank holds under a strategy: arithmetic on shapes, with the flat layouts that the
/// engine itself uses. No tensors; the planner and the run's own table ask the same function.

#include <tessera/layout/strategy.h>
#include <tessera/layout/units.h>

#include <cstdint>
#include <vector>

namespace tessera::layout {

/// What the formula depends on. Element sizes in bytes.
struct StateBytesOptions {
  StrategyRow strategy;                                                ///< which states are divided
  int shard_ranks = 1;                                                 ///< S: ranks that divide one copy
  int rank = 0;                                                        ///< place in the shard group
  WrapPolicy wrap;                                                     ///< which modules are units
  std::int64_t persistence_threshold = 0;                              ///< smaller parameters stay whole, in elements
  std::int64_t first_bucket_bytes = 1 << 20, bucket_bytes = 25 << 20;  ///< ddp, zero1, zero2: as DdpOptions
  std::int64_t whole_element = 0;    ///< bytes of an element of gathered parameters; 0: as the shards'
  std::int64_t wire_element = 4;     ///< bytes of an element of gradients while they are reduced
  double optimizer_per_element = 8;  ///< AdamW: two fp32 moments
  bool accumulates = false;          ///< several micro-batches a step
};

/// Bytes of a model's states on one rank, by what they are for.
struct StateBytes {
  std::int64_t parameters = 0;  ///< that stay on this rank
  std::int64_t gradients = 0;   ///< likewise, after backward
  std::int64_t optimizer = 0;   ///< states of the parameters that this rank updates
  /// The most that comes and goes: gathered units (the one before, the one in use and the one that is gathered ahead;
  /// the root throughout) and gradients on their way (one that fills, one that is reduced).
  std::int64_t buffers = 0;
  std::int64_t total() const { return parameters + gradients + optimizer + buffers; }  ///< the sum of the four
};

/// A transformer as far as its activations depend on it.
struct DecoderShape {
  std::int64_t blocks = 0, width = 0, inner = 0,
               key_value_width = 0;  ///< width of keys: heads that are kept x their size
  bool gated = false;                ///< two products into the MLP (SwiGLU) instead of one
};

/// What backward needs of `tokens` tokens (rows x length of a micro-batch) in fp32, as our models keep it: per token
/// and block the block's input, two normed values, the attention's result and the sum after it (5 width), queries, keys
/// and values, what the MLP's activation sees and gives; per token outside of blocks 4 width. `checkpointed`: that many
/// blocks keep their input only, and one of them at a time has the rest. Program, allocator and temporary buffers come
/// on top.
std::int64_t activation_bytes(const DecoderShape& shape, std::int64_t tokens, std::int64_t checkpointed = 0);

/// `trained[i]`: whether the tree's i-th parameter is trained; the others have no gradient and no optimizer state.
StateBytes state_bytes(const ModuleTree& tree, const std::vector<bool>& trained, const StateBytesOptions& options);

}  // namespace tessera::layout
