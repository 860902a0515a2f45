#pragma once
/// \file
/// ring/: our own reduce-scatter, all-gather and all-reduce over messages between two ranks. This header: each
/// algorithm as data, a list of steps per rank. Torch-free; executor.h executes the steps, choice.h picks an algorithm.
///
/// The tensor is cut into R blocks (R = ranks); rank b owns block b in a reduce-scatter or all-gather. Volumes per
/// rank, S = bytes of the whole tensor:
///   ring, direct        reduce-scatter and all-gather S (R-1)/R each, all-reduce twice that
///   halving_doubling    the same if R is a power of two, in log2 R steps instead of R-1
///   doubling            all-reduce only: S log2 R, in log2 R steps; for small tensors
/// If R is not a power of two, halving_doubling and doubling first fold each of the R - 2^k surplus ranks onto a
/// neighbour.
/// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH" (2005).

#include <vector>

namespace tessera::wire::ring {

enum class Collective { all_reduce, reduce_scatter, all_gather };
enum class Algorithm {
  ring,              ///< messages to the next rank only
  direct,            ///< every rank sends each other rank its block; values are not forwarded
  halving_doubling,  ///< exchanges with partners at distances R/2, R/4, ..., 1 and back
  doubling,          ///< exchanges of the whole tensor with partners at distances 1, 2, 4, ...
};
const char* algorithm_name(Algorithm algorithm);

/// Blocks [begin, end).
struct Blocks {
  int begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  bool overlaps(const Blocks& other) const { return begin < other.end && other.begin < end; }
  bool operator==(const Blocks&) const = default;
};

/// Content of a message.
enum class Content {
  input,    ///< this rank's original input: the caller's type
  partial,  ///< combined over several ranks, in the accumulation type
  result,   ///< final values: the caller's type
};

/// A concurrent send and receive. A rank executes its steps in order: a step may send what an earlier one received.
struct Step {
  int to = -1;  ///< -1: nothing is sent
  Blocks send = {};
  Content sends = Content::input;

  int from = -1;  ///< -1: nothing is received
  Blocks recv = {};
  Content receives = Content::input;
  /// True: combine the message with this rank's value of the blocks; false: replace them.
  bool reduce = false;
  /// reduce: this rank's value is still its input (no earlier step has combined these blocks).
  bool first = false;
  /// After this step, the blocks contain every rank's contribution.
  bool completes = false;
};
using Schedule = std::vector<Step>;

/// True if the algorithm supports the collective (doubling: all_reduce only).
bool implements(Algorithm algorithm, Collective collective);

/// The steps of `rank` in a group of `size` (none for size 1). The order of additions depends only on size and rank,
/// and an all-reduce gives the same bits on every rank. Throws Error for an unsupported pair.
Schedule make_schedule(Algorithm algorithm, Collective collective, int rank, int size);

}  // namespace tessera::wire::ring
