#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/data/examples.h>

#include "made_examples.h"

namespace tessera::data {
namespace {

using Ids = std::vector<std::int64_t>;
using Rows = std::vector<Ids>;

/// Example i has `lengths[i]` tokens 10 i, 10 i + 1, ...; the first two are a prompt.
std::shared_ptr<const ExampleSource> examples(const std::vector<int>& lengths) {
  auto all = std::make_shared<MadeExamples>();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(lengths[i]));
    std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(10 * i));
    std::vector<bool> scored(ids.size(), true);
    scored[0] = scored[1] = false;
    all->add(ids, scored);
  }
  return all;
}

TEST(Packing, LongestFirstIntoTheFullestRowWithRoom) {
  EXPECT_EQ(pack(Ids{5, 3, 8, 2, 2}, 10), (Rows{{0, 1, 3}, {2, 4}}));
  EXPECT_EQ(pack(Ids{10, 10}, 10), (Rows{{0}, {1}}));
  EXPECT_EQ(pack(Ids{1, 1, 1, 1, 1}, 2), (Rows{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(pack(Ids{}, 4), Rows{});
  EXPECT_THROW(pack(Ids{5}, 4), Error);
}

TEST(Packing, EveryExampleOnceAndRowsNearlyFull) {
  EXPECT_TRUE(rc::check([] {
    const auto capacity = *rc::gen::inRange<std::int64_t>(2, 200);
    const auto lengths = *rc::gen::container<Ids>(rc::gen::inRange<std::int64_t>(1, capacity + 1));
    const Rows rows = pack(lengths, capacity);
    Ids seen;
    std::int64_t half_empty = 0;
    for (const Ids& row : rows) {
      std::int64_t tokens = 0;
      for (const std::int64_t i : row) tokens += lengths[static_cast<std::size_t>(i)];
      RC_ASSERT(tokens <= capacity);
      RC_ASSERT(!row.empty() && std::is_sorted(row.begin(), row.end()));
      half_empty += 2 * tokens <= capacity;
      seen.insert(seen.end(), row.begin(), row.end());
    }
    RC_ASSERT(half_empty <= 1);  // otherwise the two rows would have been merged
    RC_ASSERT(std::is_sorted(rows.begin(), rows.end()));
    std::sort(seen.begin(), seen.end());
    RC_ASSERT(seen.size() == lengths.size());
    for (std::size_t i = 0; i < seen.size(); ++i) RC_ASSERT(seen[i] == static_cast<std::int64_t>(i));
  }));
}

TEST(Packing, PaddedRowsByHand) {
  const auto rows = example_rows(examples({3, 5, 4}), 0, 3);
  EXPECT_EQ(rows->max_length(), 5);
  EXPECT_EQ(rows->length(2), 4);
  const Batch batch = make_batch(*rows, Sampler(SamplingStrategy::sequential, 3, 0), 0, 3);
  EXPECT_TRUE(
      at::equal(batch.ids, at::tensor({0, 1, 2, 0, 0, 10, 11, 12, 13, 14, 20, 21, 22, 23, 0}, at::kLong).view({3, 5})));
  EXPECT_TRUE(at::equal(
      batch.labels, at::tensor({-100, -100, 2, -100, -100, -100, -100, 12, 13, 14, -100, -100, 22, 23, -100}, at::kLong)
                        .view({3, 5})));
  EXPECT_TRUE(batch.document_starts.empty());
  EXPECT_EQ(batch.tokens, 12);
  EXPECT_EQ(batch.scored_tokens, 6);
  EXPECT_EQ(batch.labels_not_ignored, 6);
  // Rows are as long as the longest of their own batch.
  EXPECT_EQ(make_batch(*rows, Sampler(SamplingStrategy::sequential, 3, 0), 0, 1).ids.size(1), 3);
}

TEST(Packing, PackedRowsByHand) {
  const auto rows = packed_rows(examples({3, 5, 4, 2}), 0, 4, 8);  // {0, 1}, {2, 3}
  ASSERT_EQ(rows->size(), 2);
  EXPECT_EQ(rows->max_length(), 8);
  EXPECT_EQ(rows->length(0), 8);
  EXPECT_EQ(rows->length(1), 6);
  const Batch batch = make_batch(*rows, Sampler(SamplingStrategy::sequential, 2, 0), 0, 2);
  EXPECT_TRUE(at::equal(
      batch.ids, at::tensor({0, 1, 2, 10, 11, 12, 13, 14, 20, 21, 22, 23, 30, 31, 0, 0}, at::kLong).view({2, 8})));
  EXPECT_TRUE(at::equal(
      batch.labels,
      at::tensor({-100, -100, 2, -100, -100, 12, 13, 14, -100, -100, 22, 23, -100, -100, -100, -100}, at::kLong)
          .view({2, 8})));
  EXPECT_EQ(batch.document_starts, (Ids{0, 3, 8, 12}));
  EXPECT_EQ(batch.tokens, 14);
  EXPECT_EQ(batch.scored_tokens, 6);
}

TEST(Packing, TheFirstTokenOfADocumentIsScoredNowhere) {
  auto all = std::make_shared<MadeExamples>();
  all->add(std::vector<std::int32_t>{1, 2}, {true, true});
  all->add(std::vector<std::int32_t>{3, 4}, {true, true});
  const Batch padded = make_batch(*example_rows(all, 0, 2), Sampler(SamplingStrategy::sequential, 2, 0), 0, 2);
  const Batch packed = make_batch(*packed_rows(all, 0, 2, 4), Sampler(SamplingStrategy::sequential, 1, 0), 0, 1);
  EXPECT_EQ(padded.scored_tokens, 2);
  EXPECT_EQ(padded.labels_not_ignored, 4);
  EXPECT_EQ(packed.scored_tokens, 2);
  EXPECT_TRUE(at::equal(packed.labels, at::tensor({-100, 2, -100, 4}, at::kLong).view({1, 4})));
}

TEST(Packing, AResumedRunSeesTheRowsThatItWouldHaveSeen) {
  std::vector<int> lengths;
  for (int i = 0; i < 60; ++i) lengths.push_back(2 + i * 31 % 8);
  for (const auto strategy :
       {SamplingStrategy::random, SamplingStrategy::sequential, SamplingStrategy::group_by_length}) {
    const auto before = packed_rows(examples(lengths), 0, 60, 16), after = packed_rows(examples(lengths), 0, 60, 16);
    const Sampler whole(strategy, *before, 7, 4), resumed(strategy, *after, 7, 4);
    for (std::int64_t first = 0; first < 2 * before->size(); first += 4) make_batch(*before, whole, first, 4);
    const std::int64_t stopped = before->size() + 5;  // in the second epoch
    const Batch expected = make_batch(*before, whole, stopped, 4), seen = make_batch(*after, resumed, stopped, 4);
    EXPECT_TRUE(at::equal(expected.ids, seen.ids)) << strategy;
    EXPECT_TRUE(at::equal(expected.labels, seen.labels)) << strategy;
    EXPECT_EQ(expected.document_starts, seen.document_starts) << strategy;
  }
}

/// For every scored position: the ids of its document up to it, and the id to predict.
std::map<Ids, std::int64_t> scored_contexts(const Batch& batch) {
  std::map<Ids, std::int64_t> out;
  const std::int64_t length = batch.ids.size(1);
  const auto* ids = batch.ids.const_data_ptr<std::int64_t>();
  const auto* labels = batch.labels.const_data_ptr<std::int64_t>();
  std::int64_t begin = 0;
  for (std::int64_t at = 0; at < batch.ids.numel(); ++at) {
    const auto& starts = batch.document_starts;
    if (at % length == 0 || std::find(starts.begin(), starts.end(), at) != starts.end()) begin = at;
    if (labels[at] != -100 && at % length > 0) out[Ids(ids + begin, ids + at)] = labels[at];
  }
  return out;
}

TEST(Packing, PaddedAndPackedRowsScoreTheSameTokensInTheSameContexts) {
  EXPECT_TRUE(rc::check([] {
    const auto lengths = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(2, 10)));
    const auto all = examples(lengths);
    const auto count = static_cast<std::int64_t>(lengths.size());
    const auto padded = example_rows(all, 0, count), packed = packed_rows(all, 0, count, 24);
    const Batch one = make_batch(*padded, Sampler(SamplingStrategy::sequential, padded->size(), 0), 0, padded->size());
    const Batch other =
        make_batch(*packed, Sampler(SamplingStrategy::sequential, packed->size(), 0), 0, packed->size());
    RC_ASSERT(one.tokens == other.tokens);
    RC_ASSERT(one.scored_tokens == other.scored_tokens);
    RC_ASSERT(static_cast<std::int64_t>(scored_contexts(one).size()) == one.scored_tokens);
    RC_ASSERT(scored_contexts(one) == scored_contexts(other));
  }));
}

}  // namespace
}  // namespace tessera::data
