#pragma once
/// \file
/// Defines how context-parallel ranks divide the tokens of a sequence, and which of their parts attend to each other.
///
/// Each of c ranks holds T / c tokens of every row. There are two levels, either of which may have size one:
///
///   ring    p ranks pass keys and values on (or gather them). The row is divided into 2 p equal chunks; ring rank i
///           holds chunks i and 2 p - 1 - i ("zigzag"). With a causal mask, every ring rank then has the same work,
///           because an early chunk, which sees few keys, is paired with a late one.
///   heads   a = c / p consecutive ranks share a ring rank's tokens in order, T / c each; for attention they exchange
///           tokens for heads (Ulysses, Jacobs et al. 2023), so that each has all tokens of the ring rank and 1 / a of
///           the heads.
///
/// a = 1: ring or all-gather; p = 1: all-to-all with consecutive tokens.

#include <tessera/layout/context_method.h>
#include <tessera/layout/flat.h>

#include <cstdint>
#include <vector>

namespace tessera::layout {

/// Size of the level "heads" for c ranks: 1 for p2p and all_gather, c for a2a; for a2a+p2p `wanted`, or if that is 0,
/// the smallest divisor of c above 1. Throws InputError if c does not factor into two such levels.
int head_ranks_of(ContextMethod method, int ranks, int wanted = 0);

/// How the tokens of a row are distributed over the ranks of cp.
struct SequenceCut {
  std::int64_t length = 0;  ///< tokens T per row
  int ranks = 1;            ///< c
  int head_ranks = 1;       ///< a, which divides c

  int ring_ranks() const { return ranks / head_ranks; }              ///< p
  std::int64_t local() const { return length / ranks; }              ///< tokens per rank and row
  std::int64_t ring_local() const { return length / ring_ranks(); }  ///< tokens per ring rank and row
};

/// The smallest T >= length that can be cut: a multiple of c and, if p > 1, of 2 p.
std::int64_t padded_length(std::int64_t length, int ranks, int head_ranks);
/// Throws InputError if the length cannot be cut, naming the next one that can.
SequenceCut cut_sequence(std::int64_t length, int ranks, int head_ranks);

/// The tokens of each row that a rank holds, ascending, in as few ranges as possible.
std::vector<Range> tokens_of(const SequenceCut& cut, int rank);
/// The tokens of a ring rank: the concatenated tokens of its head ranks.
std::vector<Range> tokens_of_ring(const SequenceCut& cut, int ring_rank);

/// Defines the keys visible to a query: keys of its document at positions below the row's length and, if causal, at its
/// own position or at most window - 1 before it.
struct Sight {
  bool causal = true;                        ///< queries do not see later keys
  std::int64_t window = 0;                   ///< 0: unlimited; only if causal
  std::vector<std::int64_t> documents = {};  ///< flat start positions b T + t, ascending; empty: one document per row
  std::vector<std::int64_t> lengths = {};    ///< tokens of each row without padding; empty: all
};

/// A rectangle of queries and keys between which attention is one plain product. Token indices are local: they follow
/// the order of tokens_of_ring().
struct Tile {
  enum class Kind {
    full,    ///< every query sees every key
    causal,  ///< as many queries as keys; query i sees keys 0 .. i
    band     ///< query i sees key j if 0 <= ahead + i - j < window; every query sees at least one
  };  ///< visible pairs
  static constexpr std::int64_t every_row = -1;            ///< value of `row` if the tile applies to all rows
  Kind kind = Kind::full;                                  ///< visible pairs
  std::int64_t row = every_row;                            ///< a row of the batch, or every_row
  std::int64_t query = 0, queries = 0, key = 0, keys = 0;  ///< first index and number of queries and keys
  std::int64_t ahead = 0;                                  ///< position of the first query minus position of the first
                                                           ///< key
  bool operator==(const Tile&) const = default;
};

/// All visible pairs of one ring rank's queries and another's keys, in `rows` rows, each pair once; may be empty. The
/// cost is proportional to the documents and windows involved. Throws InputError if `sight` is invalid for these rows.
std::vector<Tile> tiles(const SequenceCut& cut, std::int64_t rows, const Sight& sight, int query_ring_rank,
                        int key_ring_rank);
/// Throws InputError unless documents ascend from 0, contain every row's start and are in [0, rows T); there is one
/// length in [0, T] per row; and attention with a window is causal.
void check_sight(const SequenceCut& cut, std::int64_t rows, const Sight& sight);

/// The two levels of a group of ranks (in the order of their parts of the sequence): head_groups() divides it into runs
/// of head_ranks ranks; ring_groups() collects the ranks at the same position of every run.
std::vector<std::vector<int>> head_groups(const std::vector<int>& ranks, int head_ranks);
std::vector<std::vector<int>> ring_groups(const std::vector<int>& ranks, int head_ranks);

/// For every owner of keys, the other ring ranks that see some of them, in the order owner + 1, owner + 2, ... (modulo
/// p): the route of its block.
std::vector<std::vector<int>> itineraries(const SequenceCut& cut, std::int64_t rows, const Sight& sight);

}  // namespace tessera::layout
