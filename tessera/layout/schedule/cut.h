#pragma once
/// \file
/// Finds where to cut a model for a given schedule. Equal stages are not always best: a rank's stages add up, the last
/// stage has the head, and schedules that fill gaps with weight gradients tolerate stages that others do not.

#include <tessera/layout/schedule/timing.h>
#include <tessera/layout/stages.h>

#include <vector>

namespace tessera::layout::schedule {

/// Times of one micro-batch's passes along a chain, in any unit.
struct ChainTimes {
  std::vector<StageCosts> pieces;  ///< one per block; with `halves` two: the attention and the MLP
  bool halves = false;             ///< blocks may be cut
  StageCosts embeddings{0, 0, 0};  ///< layers before the blocks
  StageCosts end{0, 0, 0};         ///< layers after the blocks
};

/// Length in tokens of the row whose FLOP determine the cut, if the model has that many positions.
inline constexpr std::int64_t flops_of_tokens = 1024;
/// FLOP of a block's forward pass per token. Products with weights cost as much again for the gradients of their inputs
/// and of their weights. Attention scores and values are counted as if every token attended to the whole row.
struct BlockFlops {
  double attention = 0;  ///< products with attention's weights
  double scores = 0;     ///< scores and weighted values, which have no weights
  double mlp = 0;        ///< products with the MLP's weights, or those of a token's experts
  double all() const { return attention + scores + mlp; }  ///< the sum of the three
};
/// FLOP per token after the blocks: a head, and depths of multi-token prediction, each of which has a map before its
/// block and uses the head again.
struct EndFlops {
  double head = 0;                      ///< logits
  std::vector<BlockFlops> depths = {};  ///< the block of each depth
  double depth_map = 0;                 ///< a depth's map from two widths to one
};
/// Returns the times of these blocks and this end. Attention is assumed to be causal (half of the scores), has no
/// weights, and recomputes its scores in backward; a head computes its gradients in the forward pass, chunk by chunk
/// (nn/linear_cross_entropy.h). Embedding look-ups count as free.
ChainTimes chain_of_flops(const std::vector<BlockFlops>& blocks, const EndFlops& end, bool halves);

/// Returns the costs of a cut's stages. Backward is input gradient plus weight gradient.
std::vector<StageCosts> stage_costs(const std::vector<StagePart>& parts, const ChainTimes& chain);

/// Returns the cut with the shortest step according to time_schedule(). Starts from even cuts and from cuts by cost,
/// and moves one or two borders at a time while that helps. The result is never worse than the starting cuts, but not
/// necessarily optimal. Takes at most about the time of simulating four million actions, shared by its three starting
/// cuts. Deterministic, so equal on every rank. Throws InputError where cut_by_cost() and time_schedule() do.
std::vector<StagePart> cut_for_schedule(const ChainTimes& chain, const Schedule& schedule);

}  // namespace tessera::layout::schedule
