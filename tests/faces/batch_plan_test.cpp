// How rows are dealt out, compared with accelerate's own loops (BatchSamplerShard), which are transcribed here.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/faces/batch_plan.h>

#include <algorithm>

namespace {

using namespace tessera;
using faces::BatchPlan;
using Batches = std::vector<std::vector<std::int64_t>>;

Batches all_batches(std::int64_t rows, std::int64_t size, bool drop_last) {
  Batches batches;
  for (std::int64_t begin = 0; begin < rows; begin += size) {
    std::vector<std::int64_t> batch;
    for (std::int64_t k = begin; k < std::min(begin + size, rows); ++k) batch.push_back(k);
    if (!drop_last || static_cast<std::int64_t>(batch.size()) == size) batches.push_back(batch);
  }
  return batches;
}

/// accelerate/data_loader.py, BatchSamplerShard._iter_with_no_split.
Batches no_split(const BatchPlan& p, std::int64_t rank) {
  Batches out;
  std::vector<std::int64_t> initial, to_yield, batch;
  std::int64_t idx = -1;
  const auto full = [&](const std::vector<std::int64_t>& b) {
    return static_cast<std::int64_t>(b.size()) == p.batch_size;
  };
  for (const auto& next : all_batches(p.rows, p.batch_size, p.drop_last)) {
    batch = next;
    ++idx;
    if (!p.drop_last && idx < p.ranks) initial.insert(initial.end(), batch.begin(), batch.end());
    if (idx % p.ranks == rank) to_yield = batch;
    if (idx % p.ranks == p.ranks - 1 && full(batch)) {
      out.push_back(to_yield);
      to_yield.clear();
    }
  }
  if (p.drop_last || initial.empty()) return out;
  if (!p.even_batches) {
    if (!to_yield.empty()) out.push_back(to_yield);
    return out;
  }
  if (full(to_yield)) out.push_back(to_yield);
  while (static_cast<std::int64_t>(initial.size()) < p.ranks * p.batch_size) {
    const auto copy = initial;
    initial.insert(initial.end(), copy.begin(), copy.end());
  }
  if (full(batch)) {
    batch.clear();
    ++idx;
  }
  std::int64_t cycle = 0;
  while (idx % p.ranks != 0 || !batch.empty()) {
    const std::int64_t end = cycle + p.batch_size - static_cast<std::int64_t>(batch.size());
    batch.insert(batch.end(), initial.begin() + cycle, initial.begin() + end);
    if (idx % p.ranks == rank) out.push_back(batch);
    cycle = end;
    batch.clear();
    ++idx;
  }
  return out;
}

/// BatchSamplerShard._iter_with_split.
Batches with_split(const BatchPlan& p, std::int64_t rank) {
  Batches out;
  std::vector<std::int64_t> initial, batch;
  const std::int64_t length = p.batch_size / p.ranks;
  const auto slice = [&](const std::vector<std::int64_t>& b) {
    const auto size = static_cast<std::int64_t>(b.size());
    return std::vector<std::int64_t>(b.begin() + std::min(size, length * rank),
                                     b.begin() + std::min(size, length * (rank + 1)));
  };
  std::int64_t idx = -1;
  for (const auto& next : all_batches(p.rows, p.batch_size, p.drop_last)) {
    batch = next;
    if (++idx == 0) initial = batch;
    if (static_cast<std::int64_t>(batch.size()) == p.batch_size) out.push_back(slice(batch));
  }
  if (p.drop_last || initial.empty() || static_cast<std::int64_t>(batch.size()) == p.batch_size) return out;
  if (!p.even_batches) {
    if (static_cast<std::int64_t>(batch.size()) > length * rank) out.push_back(slice(batch));
    return out;
  }
  while (static_cast<std::int64_t>(initial.size()) < p.batch_size) {
    const auto copy = initial;
    initial.insert(initial.end(), copy.begin(), copy.end());
  }
  batch.insert(batch.end(), initial.begin(), initial.end());
  out.push_back(slice(batch));
  return out;
}

RC_GTEST_PROP(BatchPlan, deals_as_accelerate_does, ()) {
  BatchPlan plan;
  plan.ranks = *rc::gen::inRange<std::int64_t>(1, 6);
  plan.split_batches = *rc::gen::arbitrary<bool>();
  plan.batch_size = *rc::gen::inRange<std::int64_t>(1, 6) * (plan.split_batches ? plan.ranks : 1);
  plan.rows = *rc::gen::inRange<std::int64_t>(0, 60);
  plan.drop_last = *rc::gen::arbitrary<bool>();
  plan.even_batches = *rc::gen::arbitrary<bool>();
  for (std::int64_t rank = 0; rank < plan.ranks; ++rank) {
    Batches mine;
    for (std::int64_t i = 0; i < plan.batches(rank); ++i) mine.push_back(plan.positions(rank, i));
    RC_ASSERT(mine == (plan.split_batches ? with_split(plan, rank) : no_split(plan, rank)));
  }
}

RC_GTEST_PROP(BatchPlan, without_what_fills_up_every_row_comes_once, ()) {
  BatchPlan plan{.rows = *rc::gen::inRange<std::int64_t>(1, 60),
                 .batch_size = *rc::gen::inRange<std::int64_t>(1, 6),
                 .ranks = *rc::gen::inRange<std::int64_t>(1, 5)};
  std::vector<std::int64_t> seen;
  const std::int64_t rounds = plan.batches(0);
  for (std::int64_t i = 0; i < rounds; ++i) {
    std::vector<std::int64_t> round;
    for (std::int64_t rank = 0; rank < plan.ranks; ++rank)
      for (const std::int64_t k : plan.positions(rank, i)) round.push_back(k);
    if (i + 1 == rounds && plan.remainder() > 0) round.resize(static_cast<std::size_t>(plan.remainder()));
    seen.insert(seen.end(), round.begin(), round.end());
  }
  RC_ASSERT(static_cast<std::int64_t>(seen.size()) == plan.rows);
  for (std::int64_t k = 0; k < plan.rows; ++k) RC_ASSERT(seen[static_cast<std::size_t>(k)] == k);
}

TEST(BatchPlan, says_what_does_not_fit) {
  EXPECT_THROW(faces::check({.rows = 8, .batch_size = 0}), InputError);
  try {
    faces::check({.rows = 8, .batch_size = 6, .ranks = 4, .split_batches = true});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("batches of 6 rows among 4 processes"), std::string::npos) << error.what();
  }
}

}  // namespace
