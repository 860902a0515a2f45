#pragma once
/// \file
/// Where to cut a model for one schedule. Equal stages are not what every schedule wants: a rank's stages add up, the
/// last stage has the head, and schedules that put weight gradients in gaps bear stages that others do not.

#include <tessera/layout/schedule/timing.h>
#include <tessera/layout/stages.h>

#include <vector>

namespace tessera::layout::schedule {

/// What the passes of one micro-batch take on a chain, in any unit of time.
struct ChainTimes {
  std::vector<StageCosts> pieces;  ///< one for each block, or with `halves` two: its attention, its MLP
  bool halves = false;             ///< blocks may be cut
  StageCosts embeddings{0, 0, 0};  ///< what comes before the blocks
  StageCosts end{0, 0, 0};         ///< what comes after them
};

/// The row whose FLOP say where to cut, where positions reach so far.
inline constexpr std::int64_t flops_of_tokens = 1024;
/// FLOP of a block's forward pass per token. Products with weights cost as much again for the gradients of their inputs
/// and of their weights. Scores, and mixing what they weigh, are counted as if every token saw the whole row.
struct BlockFlops {
  double attention = 0;  ///< products with attention's weights
  double scores = 0;     ///< scores and what they mix: no weights
  double mlp = 0;        ///< products with the MLP's weights, or those of the experts that a token meets
  double all() const { return attention + scores + mlp; }  ///< the sum of the three
};
/// What follows the blocks, in FLOP per token: a head, and depths of multi-token prediction, each of which passes the
/// head again and has a map before its block.
struct EndFlops {
  double head = 0;                      ///< logits of a token
  std::vector<BlockFlops> depths = {};  ///< the block of each depth
  double depth_map = 0;                 ///< a depth's map of two widths to one
};
/// The passes through such blocks and such an end. Attention is taken to be causal (half of the scores), has no
/// weights, and computes its scores again in backward; a head computes its gradients in the forward pass, chunk by
/// chunk (nn/linear_cross_entropy.h). Looking up embeddings costs nothing beside them.
ChainTimes chain_of_flops(const std::vector<BlockFlops>& blocks, const EndFlops& end, bool halves);

/// What the stages of a cut take. Backward is input and weight gradient, one after the other.
std::vector<StageCosts> stage_costs(const std::vector<StagePart>& parts, const ChainTimes& chain);

/// The cut with which time_schedule() says the shortest step. It starts from even cuts and cuts by cost and moves one
/// or two borders at a time as long as that helps, so it is never worse than these; the best one is not promised. Time:
/// about that of simulating four million actions at most, which its three starts share. The same on every rank. Throws
/// InputError where cut_by_cost() and time_schedule() do.
std::vector<StagePart> cut_for_schedule(const ChainTimes& chain, const Schedule& schedule);

}  // namespace tessera::layout::schedule
