#pragma once
/// \file
/// Bytes of training state per rank under a strategy: arithmetic on shapes, with the engine's own flat layouts. No
/// tensors; used by the planner and by the run's own table.

#include <tessera/layout/strategy.h>
#include <tessera/layout/units.h>

#include <cstdint>
#include <vector>

namespace tessera::layout {

/// Inputs of the formula. Element sizes are in bytes.
struct StateBytesOptions {
  StrategyRow strategy;                                                ///< determines which states are divided
  int shard_ranks = 1;                                                 ///< S: ranks that divide one copy
  int rank = 0;                                                        ///< index in the shard group
  WrapPolicy wrap;                                                     ///< selects the modules that are units
  std::int64_t persistence_threshold = 0;                              ///< elements; smaller parameters stay whole
  std::int64_t first_bucket_bytes = 1 << 20, bucket_bytes = 25 << 20;  ///< ddp, zero1, zero2: see DdpOptions
  std::int64_t whole_element = 0;    ///< bytes per element of gathered parameters; 0: as in the shards
  std::int64_t wire_element = 4;     ///< bytes per element of gradients while they are reduced
  double optimizer_per_element = 8;  ///< AdamW: two fp32 moments
  bool accumulates = false;          ///< whether a step has several micro-batches
};

/// Bytes of a model's states on one rank, by purpose.
struct StateBytes {
  std::int64_t parameters = 0;  ///< stored on this rank
  std::int64_t gradients = 0;   ///< stored on this rank after backward
  std::int64_t optimizer = 0;   ///< optimizer states of the parameters that this rank updates
  /// Peak of temporary buffers: gathered units (previous, current and prefetched; the root throughout) and gradients in
  /// flight (one bucket filling, one being reduced).
  std::int64_t buffers = 0;
  std::int64_t total() const { return parameters + gradients + optimizer + buffers; }  ///< the sum of the four
};

/// The sizes of a transformer that determine its activations.
struct DecoderShape {
  std::int64_t blocks = 0, width = 0, inner = 0,
               key_value_width = 0;  ///< width of keys: number of heads x head size
  bool gated = false;                ///< the MLP has two input products (SwiGLU) instead of one
};

/// Bytes of activations that backward needs for `tokens` tokens (rows x length of a micro-batch) in fp32, as our models
/// keep them. Per token and block: the block's input, two normed values, the attention's result and the sum after it (5
/// width), queries, keys and values, and the input and output of the MLP's activation; per token outside the blocks 4
/// width. `checkpointed`: that many blocks keep only their input, and one at a time also has the rest. Program,
/// allocator and temporary buffers are not included.
std::int64_t activation_bytes(const DecoderShape& shape, std::int64_t tokens, std::int64_t checkpointed = 0);

/// `trained[i]`: whether the tree's i-th parameter is trained; others have no gradient or optimizer state.
StateBytes state_bytes(const ModuleTree& tree, const std::vector<bool>& trained, const StateBytesOptions& options);

}  // namespace tessera::layout
