#pragma once
/// \file
/// How context-parallel ranks divide the tokens of a sequence, and which of their parts see each other in attention.
///
/// c ranks hold T / c tokens of every row each. Two levels, either of which may be one rank wide:
///
///   ring    p ranks pass keys and values on (or gather them). The row is 2 p equal chunks, ring rank i holds chunks i
///           and 2 p - 1 - i ("zigzag"): under causality every ring rank then has the same work, since an early chunk,
///           which sees little, is paired with a late one.
///   heads   a = c / p consecutive ranks share a ring rank's tokens in order, T / c each; for attention they exchange
///           tokens for heads (Ulysses, Jacobs et al. 2023), so that each has all tokens of the ring rank and 1 / a of
///           the heads.
///
/// a = 1: the ring or all-gather; p = 1: all-to-all, and consecutive tokens.

#include <tessera/layout/context_method.h>
#include <tessera/layout/flat.h>

#include <cstdint>
#include <vector>

namespace tessera::layout {

/// Ranks of the level "heads" when c ranks work by that method: 1 for p2p and all_gather, c for a2a. a2a+p2p: `wanted`,
/// or, when that is 0, the smallest divisor of c above 1. Throws InputError where c has no two such levels.
int head_ranks_of(ContextMethod method, int ranks, int wanted = 0);

/// How the tokens of a row lie on the ranks of cp.
struct SequenceCut {
  std::int64_t length = 0;  ///< tokens T of a row
  int ranks = 1;            ///< c
  int head_ranks = 1;       ///< a, which divides c

  int ring_ranks() const { return ranks / head_ranks; }              ///< p
  std::int64_t local() const { return length / ranks; }              ///< tokens per rank and row
  std::int64_t ring_local() const { return length / ring_ranks(); }  ///< tokens per ring rank and row
};

/// The least T >= length that can be cut: a multiple of c and, with p > 1, of 2 p.
std::int64_t padded_length(std::int64_t length, int ranks, int head_ranks);
/// Throws InputError when the length cannot be cut, naming the next that can.
SequenceCut cut_sequence(std::int64_t length, int ranks, int head_ranks);

/// The tokens of each row that a rank holds, in the order in which it holds them: ascending, as few ranges as possible.
std::vector<Range> tokens_of(const SequenceCut& cut, int rank);
/// The tokens of a ring rank: those of its head ranks one after the other.
std::vector<Range> tokens_of_ring(const SequenceCut& cut, int ring_rank);

/// Which keys a query sees: those of its document, of a position below the row's length, and, when causal, up to itself
/// and not more than window - 1 before it.
struct Sight {
  bool causal = true;                        ///< no query sees a later key
  std::int64_t window = 0;                   ///< 0: none; only when causal
  std::vector<std::int64_t> documents = {};  ///< flat positions b T + t of starts, ascending; empty: one per row
  std::vector<std::int64_t> lengths = {};    ///< tokens of each row that are no padding; empty: all
};

/// A rectangle of queries and keys between which attention is one plain product. Numbers of tokens are local: they
/// count in the order of tokens_of_ring().
struct Tile {
  enum class Kind {
    full,    ///< every query sees every key
    causal,  ///< as many queries as keys; query i sees keys 0 .. i
    band     ///< query i sees key j where 0 <= ahead + i - j < window; every query sees one at least
  };  ///< which of its pairs see each other
  static constexpr std::int64_t every_row = -1;            ///< as `row`: the tile is in all of them
  Kind kind = Kind::full;                                  ///< which of its pairs see each other
  std::int64_t row = every_row;                            ///< a row of the batch, or every_row
  std::int64_t query = 0, queries = 0, key = 0, keys = 0;  ///< the first of each, and their numbers
  std::int64_t ahead = 0;                                  ///< position of the first query minus that of the first key
  bool operator==(const Tile&) const = default;
};

/// All that queries of one ring rank see of the keys of another, in `rows` rows, each pair once; empty when nothing.
/// Documents and windows cost what they contain. Throws InputError when `sight` makes no sense for these rows.
std::vector<Tile> tiles(const SequenceCut& cut, std::int64_t rows, const Sight& sight, int query_ring_rank,
                        int key_ring_rank);
/// Throws InputError unless documents ascend from 0, hold every row's start and lie in [0, rows T); lengths are one per
/// row in [0, T]; and a window is causal.
void check_sight(const SequenceCut& cut, std::int64_t rows, const Sight& sight);

/// The two levels of a group of ranks (in the order of their parts of the sequence): head_groups() cuts it in runs of
/// head_ranks ranks, ring_groups() collects the ranks of the same place in every run.
std::vector<std::vector<int>> head_groups(const std::vector<int>& ranks, int head_ranks);
std::vector<std::vector<int>> ring_groups(const std::vector<int>& ranks, int head_ranks);

/// For every owner of keys the other ring ranks that see some of them, in the order owner + 1, owner + 2, ... (modulo
/// p): the way that a block travels.
std::vector<std::vector<int>> itineraries(const SequenceCut& cut, std::int64_t rows, const Sight& sight);

}  // namespace tessera::layout
