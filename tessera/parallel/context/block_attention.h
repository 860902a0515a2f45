#pragma once
/// \file
/// Attention with keys and values in blocks on the ranks of a ring.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/layout/sequence.h>
#include <tessera/parallel/context/tile_attention.h>

#include <memory>
#include <vector>

namespace tessera::parallel {

/// A visit of another rank's block at this rank.
struct Visit {
  int owner;
  int from;  ///< the rank that sends it here
  int to;    ///< the rank that it goes to next; -1: none
};

/// The course of the attention, as far as it does not depend on tensors.
struct BlockPlan {
  comm::Group ring;     ///< empty: one rank
  bool gather = false;  ///< all blocks at once (all-gather) instead of one after another (ring)
  std::vector<std::vector<layout::Tile>> tiles;      ///< tiles that this rank's queries attend to, by owner of the keys
  std::vector<std::vector<std::int64_t>> positions;  ///< by owner: positions of its tokens in their row
  std::vector<std::vector<int>> ways;                ///< by owner: the other ranks that attend to its keys
  std::vector<Visit> visits;                         ///< blocks that visit this rank, nearest owner first
  TileOptions options;

  int rank() const { return ring ? ring.rank() : 0; }
  KeyBlock block(int owner, const at::Tensor& k, const at::Tensor& v) const {
    const auto at = static_cast<std::size_t>(owner);
    return {k, v, tiles[at], positions[at]};
  }
};
std::shared_ptr<const BlockPlan> make_block_plan(const comm::Group& ring, bool gather, const layout::SequenceCut& cut,
                                                 std::int64_t rows, const layout::Sight& sight, TileOptions options);

/// q [B, t, heads, D]; k, v [B, t, key heads, D]: this ring rank's tokens. Returns [B, t, heads * D]. Differentiable
/// once; forward and backward are collective over the ring. This rank's own block comes first, then that of rank - 1,
/// rank - 2, ...: the order of summation depends only on the cut. Between forward and backward only this rank's own
/// keys and values are kept.
at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::shared_ptr<const BlockPlan>& plan);

}  // namespace tessera::parallel
