#pragma once
/// \file
/// parallel/context/: context parallelism. Every sequence is divided among c ranks; attention is the only operation
/// across parts (docs/parallelism.md). This header: the ranks, and how keys and values are exchanged between them.

#include <tessera/comm/group.h>
#include <tessera/comm/world.h>
#include <tessera/layout/mesh.h>
#include <tessera/layout/sequence.h>

namespace tessera {

using layout::ContextMethod;

/// Copyable handles. The ranks of `all`, in this order, hold the parts of each sequence (layout/sequence.h); rank r is
/// number r % head_ranks() of its group `heads` and number r / head_ranks() of its group `ring`.
struct ContextGroups {
  ContextMethod method = ContextMethod::p2p;  ///< how keys and values are exchanged
  comm::Group all;                            ///< the ranks of cp
  comm::Group heads = {};                     ///< ranks that exchange tokens for heads; empty: no exchange (p2p,
                                              ///< all_gather)
  comm::Group ring = {};                      ///< ranks that exchange keys and values; empty: no exchange (a2a)

  int ranks() const { return all.size(); }  ///< c
  /// a: ranks that exchange tokens for heads; 1: no exchange.
  int head_ranks() const { return heads ? heads.size() : 1; }
  /// The cut of rows with this many tokens. Throws InputError when they cannot be cut.
  layout::SequenceCut cut(std::int64_t length) const { return layout::cut_sequence(length, ranks(), head_ranks()); }
  /// The smallest number of tokens >= length that can be cut.
  std::int64_t padded(std::int64_t length) const { return layout::padded_length(length, ranks(), head_ranks()); }
};

/// The groups of a mesh's axis cp: "cp 0", and for a2a+p2p "cp-heads 0" and "cp-ring 0" within it. head_ranks: number
/// of ranks at the level "heads" of a2a+p2p; 0: the smallest that leaves two levels. Collective over the world; throws
/// InputError if the method does not fit the mesh.
ContextGroups context_groups(comm::World& world, const layout::Mesh& mesh, ContextMethod method, int head_ranks = 0);

/// The same from an existing group; a2a+p2p, which needs two levels of groups, is refused (InputError).
ContextGroups context_groups(const comm::Group& group, ContextMethod method);

}  // namespace tessera
