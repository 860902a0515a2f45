#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/layout/sequence.h>

#include <algorithm>
#include <set>

namespace tessera::layout {
namespace {

SequenceCut any_cut() {
  const int head_ranks = *rc::gen::inRange(1, 5), rings = *rc::gen::inRange(1, 6);
  const int ranks = head_ranks * rings;
  const auto length = *rc::gen::inRange<std::int64_t>(1, 60);
  return cut_sequence(padded_length(length, ranks, head_ranks), ranks, head_ranks);
}

Sight any_sight(const SequenceCut& cut, std::int64_t rows) {
  Sight sight;
  sight.causal = *rc::gen::weightedElement<bool>({{3, true}, {1, false}});
  if (sight.causal && *rc::gen::arbitrary<bool>())
    sight.window = *rc::gen::inRange<std::int64_t>(1, 2 * cut.length + 1);
  if (*rc::gen::arbitrary<bool>()) {
    std::set<std::int64_t> starts;
    for (std::int64_t row = 0; row < rows; ++row) starts.insert(row * cut.length);
    const int more = *rc::gen::inRange(0, 6);
    for (int i = 0; i < more; ++i) starts.insert(*rc::gen::inRange<std::int64_t>(0, rows * cut.length));
    sight.documents.assign(starts.begin(), starts.end());
  }
  if (*rc::gen::arbitrary<bool>())
    for (std::int64_t row = 0; row < rows; ++row)
      sight.lengths.push_back(*rc::gen::inRange<std::int64_t>(0, cut.length + 1));
  return sight;
}

std::vector<std::int64_t> listed(const std::vector<Range>& ranges) {
  std::vector<std::int64_t> tokens;
  for (const Range& range : ranges)
    for (std::int64_t t = range.begin; t < range.end; ++t) tokens.push_back(t);
  return tokens;
}

/// Whether query q of the row sees key k, by definition.
bool sees(const SequenceCut& cut, const Sight& sight, std::int64_t row, std::int64_t q, std::int64_t k) {
  const auto document = [&](std::int64_t t) {
    return std::upper_bound(sight.documents.begin(), sight.documents.end(), row * cut.length + t);
  };
  if (!sight.documents.empty() && document(q) != document(k)) return false;
  if (!sight.lengths.empty() && k >= sight.lengths[static_cast<std::size_t>(row)]) return false;
  if (sight.causal && k > q) return false;
  return sight.window == 0 || q - k < sight.window;
}

RC_GTEST_PROP(Sequence, RanksDivideTheTokens, ()) {
  const SequenceCut cut = any_cut();
  std::vector<std::int64_t> all;
  for (int ring = 0; ring < cut.ring_ranks(); ++ring) {
    std::vector<std::int64_t> together;
    for (int u = 0; u < cut.head_ranks; ++u) {
      const auto mine = listed(tokens_of(cut, ring * cut.head_ranks + u));
      RC_ASSERT(static_cast<std::int64_t>(mine.size()) == cut.local());
      together.insert(together.end(), mine.begin(), mine.end());
    }
    RC_ASSERT(together == listed(tokens_of_ring(cut, ring)));
    RC_ASSERT(std::is_sorted(together.begin(), together.end()));
    all.insert(all.end(), together.begin(), together.end());
  }
  std::sort(all.begin(), all.end());
  RC_ASSERT(all == listed({{0, cut.length}}));
}

RC_GTEST_PROP(Sequence, TilesHoldEveryVisiblePairOnce, ()) {
  const SequenceCut cut = any_cut();
  const auto rows = *rc::gen::inRange<std::int64_t>(1, 4);
  const Sight sight = any_sight(cut, rows);
  const auto ways = itineraries(cut, rows, sight);
  for (int i = 0; i < cut.ring_ranks(); ++i)
    for (int j = 0; j < cut.ring_ranks(); ++j) {
      const auto queries = listed(tokens_of_ring(cut, i)), keys = listed(tokens_of_ring(cut, j));
      const auto n = queries.size(), m = keys.size();
      std::vector<int> covered(static_cast<std::size_t>(rows) * n * m, 0);
      const auto found = tiles(cut, rows, sight, i, j);
      for (const Tile& tile : found) {
        RC_ASSERT(tile.queries > 0 && tile.keys > 0);
        if (tile.kind == Tile::Kind::causal) RC_ASSERT(tile.queries == tile.keys);
        for (std::int64_t row = 0; row < rows; ++row) {
          if (tile.row != Tile::every_row && tile.row != row) continue;
          for (std::int64_t a = 0; a < tile.queries; ++a) {
            bool any = false;
            for (std::int64_t b = 0; b < tile.keys; ++b) {
              const std::int64_t back = tile.ahead + a - b;
              if (tile.kind == Tile::Kind::causal && b > a) continue;
              if (tile.kind == Tile::Kind::band && (back < 0 || back >= sight.window)) continue;
              any = true;
              ++covered[(static_cast<std::size_t>(row) * n + static_cast<std::size_t>(tile.query + a)) * m +
                        static_cast<std::size_t>(tile.key + b)];
            }
            RC_ASSERT(any);
          }
        }
      }
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::size_t a = 0; a < n; ++a)
          for (std::size_t b = 0; b < m; ++b)
            RC_ASSERT(covered[(static_cast<std::size_t>(row) * n + a) * m + b] ==
                      (sees(cut, sight, row, queries[a], keys[b]) ? 1 : 0));
      const auto& way = ways[static_cast<std::size_t>(j)];
      RC_ASSERT(i == j || found.empty() == (std::find(way.begin(), way.end(), i) == way.end()));
    }
}

TEST(Sequence, a_causal_ring_of_four_is_balanced_and_in_few_products) {
  const SequenceCut cut = cut_sequence(64, 4, 1);
  for (int i = 0; i < 4; ++i) {
    std::int64_t pairs = 0;
    for (int j = 0; j < 4; ++j) {
      const auto found = tiles(cut, 3, {}, i, j);
      ASSERT_EQ(found.size(), 1u) << i << " of " << j;
      EXPECT_EQ(found[0].kind, i == j ? Tile::Kind::causal : Tile::Kind::full);
      pairs += i == j ? 16 * 17 / 2 : found[0].queries * found[0].keys;
    }
    EXPECT_EQ(pairs, 64 * 65 / 2 / 4) << "a quarter of the work";
  }
}

TEST(Sequence, a_window_and_documents_keep_blocks_at_home) {
  // Chunks of 8 tokens, assigned to ring ranks 0 1 2 3 | 3 2 1 0: chunk n sees only chunks n and n - 1.
  const SequenceCut cut = cut_sequence(64, 4, 1);
  using Ways = std::vector<std::vector<int>>;
  EXPECT_EQ(itineraries(cut, 1, {.window = 8}), (Ways{{1}, {2, 0}, {3, 1}, {2}}));
  EXPECT_EQ(itineraries(cut, 1, {.documents = {0, 8, 16, 24, 40, 48, 56}}), (Ways{{}, {}, {}, {}}));
  EXPECT_EQ(itineraries(cut, 1, {}), (Ways{{1, 2, 3}, {2, 3, 0}, {3, 0, 1}, {0, 1, 2}}));
}

TEST(Sequence, levels_of_a_group) {
  using Groups = std::vector<std::vector<int>>;
  EXPECT_EQ(head_groups({0, 2, 4, 6}, 2), (Groups{{0, 2}, {4, 6}}));
  EXPECT_EQ(ring_groups({0, 2, 4, 6}, 2), (Groups{{0, 4}, {2, 6}}));
}

TEST(Sequence, refusals_name_the_rule_the_numbers_and_a_remedy) {
  const auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(
      message([] { (void)cut_sequence(10, 2, 1); }),
      "a sequence of 10 tokens cannot be cut for context parallelism over 2 ranks: it must be a multiple of 2 and "
      "of 2 x 2 chunks; the next possible length is 12");
  EXPECT_NE(message([] { (void)cut_sequence(10, 4, 4); }).find("the next possible length is 12"), std::string::npos);
  EXPECT_NE(message([] { (void)head_ranks_of(ContextMethod::a2a_p2p, 2); }).find("two levels"), std::string::npos);
  EXPECT_NE(message([] { (void)head_ranks_of(ContextMethod::a2a_p2p, 6, 4); }).find("6 ranks"), std::string::npos);
  EXPECT_EQ(head_ranks_of(ContextMethod::a2a_p2p, 6), 2);
  EXPECT_EQ(head_ranks_of(ContextMethod::a2a_p2p, 6, 3), 3);
  for (const char* name : {"p2p", "all_gather", "a2a", "a2a+p2p"})
    EXPECT_EQ(word_of(parse_word<ContextMethod>(name).value()), name);
  EXPECT_EQ(parse_word<ContextMethod>("ring"), ContextMethod::p2p);
  EXPECT_EQ(parse_word<ContextMethod>("ulysses"), ContextMethod::a2a);
  const SequenceCut cut = cut_sequence(8, 2, 1);
  for (const Sight& wrong :
       {Sight{.documents = {0, 20}}, Sight{.documents = {0, 3}}, Sight{.documents = {0, 8, 5}}, Sight{.lengths = {8}},
        Sight{.lengths = {8, 9}}, Sight{.causal = false, .window = 2}, Sight{.window = -1}})
    EXPECT_THROW((void)tiles(cut, 2, wrong, 0, 0), InputError);
}

}  // namespace
}  // namespace tessera::layout
