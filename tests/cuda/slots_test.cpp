// Slots sorted by expert, compared with a loop over them.
#include <tessera/kernels/cuda/slots.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <stdexcept>
#include <vector>

namespace tessera::kernels::cuda {
namespace {

using cuda_tests::in_each_order;
using Ids = std::vector<std::int64_t>;

struct Sorted {
  Ids order, inverse, counts;
  std::vector<std::int32_t> ends;
  bool operator==(const Sorted&) const = default;
};

constexpr std::int64_t untouched = -7;  // marks rows that no slot uses

Sorted expected(const Ids& ids, std::int64_t experts, std::int64_t rows_each) {
  Sorted s;
  s.order.assign(rows_each > 0 ? static_cast<std::size_t>(experts * rows_each) : ids.size(), untouched);
  s.inverse.assign(ids.size(), -1);
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t first = row;
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      if (ids[slot] != e) continue;
      s.order[static_cast<std::size_t>(row)] = static_cast<std::int64_t>(slot);
      s.inverse[slot] = row++;
    }
    if (rows_each > 0) row = first + rows_each;
    s.counts.push_back(row - first);
    s.ends.push_back(static_cast<std::int32_t>(row));
  }
  return s;
}

Sorted sorted(const Ids& ids, std::int64_t experts, std::int64_t rows_each) {
  const auto slots = static_cast<std::int64_t>(ids.size());
  Sorted s;
  s.order.assign(rows_each > 0 ? static_cast<std::size_t>(experts * rows_each) : ids.size(), untouched);
  s.inverse.assign(ids.size(), untouched);
  s.counts.assign(static_cast<std::size_t>(experts), untouched);
  s.ends.assign(static_cast<std::size_t>(experts), untouched);
  std::vector<std::int32_t> scratch(static_cast<std::size_t>(slot_scratch(slots, experts)), 0);
  sort_slots({.ids = ids.data(),
              .rows_each = rows_each,
              .order = s.order.data(),
              .inverse = s.inverse.data(),
              .counts = s.counts.data(),
              .ends = s.ends.data(),
              .scratch = scratch.data()},
             slots, experts, nullptr);
  return s;
}

void expect_sorted(const Ids& ids, std::int64_t experts, std::int64_t rows_each = 0) {
  const Sorted want = expected(ids, experts, rows_each);
  in_each_order([&] {
    const Sorted got = sorted(ids, experts, rows_each);
    EXPECT_EQ(got.order, want.order) << ids.size() << " slots of " << experts << " experts";
    EXPECT_EQ(got.inverse, want.inverse);
    EXPECT_EQ(got.counts, want.counts);
    EXPECT_EQ(got.ends, want.ends);
  });
}

/// With `dropped`, a tenth of the slots has no expert.
Ids random_ids(std::int64_t slots, std::int64_t experts, bool dropped) {
  std::mt19937_64 numbers(static_cast<std::uint64_t>(slots * 1000 + experts));
  Ids ids;
  for (std::int64_t s = 0; s < slots; ++s)
    ids.push_back(
        dropped && numbers() % 10 == 0 ? -1 : static_cast<std::int64_t>(numbers() % static_cast<unsigned>(experts)));
  return ids;
}

TEST(CudaSlots, AreInTheOrderOfExperts) {
  for (const bool dropped : {false, true}) {
    for (const std::int64_t slots : {1 * 1, 31 * 1, 37 * 7, 64 * 4, 257 * 3}) {
      for (const std::int64_t experts : {1, 2, 7}) expect_sorted(random_ids(slots, experts, dropped), experts);
    }
    expect_sorted(random_ids(97 * 8, 40, dropped), 40);
  }
}

TEST(CudaSlots, ManyExpertsAndManyParts) {
  const Ids many = random_ids(1031, 1000, true);
  EXPECT_EQ(sorted(many, 1000, 0), expected(many, 1000, 0));
  const Ids long_line = random_ids(300 * 256 + 5, 3, true);  // more parts than a block can sum in one iteration
  EXPECT_EQ(sorted(long_line, 3, 0), expected(long_line, 3, 0));
}

TEST(CudaSlots, AllToOneExpert) {
  for (const std::int64_t expert : {0, 5, 19}) expect_sorted(Ids(777, expert), 20);
  expect_sorted(Ids(300, -1), 4);
}

TEST(CudaSlots, AsManyRowsForEachExpert) {
  expect_sorted(random_ids(90, 7, true), 7, 40);
  expect_sorted(Ids(40, 2), 7, 40);
  expect_sorted({}, 3, 2);
}

TEST(CudaSlots, NoSlots) {
  expect_sorted({}, 3);
  sort_slots({}, 0, 0, nullptr);
}

TEST(CudaSlots, WhatMustNotBeStopsTheDevice) {
  EXPECT_THROW(sorted({0, 1, 3}, 3, 0), std::runtime_error);
  EXPECT_THROW(sorted({0, -2, 1}, 3, 0), std::runtime_error);
  EXPECT_THROW(sorted({0, 1, 1, 1}, 3, 2), std::runtime_error);
  EXPECT_THROW(sorted({std::int64_t{1} << 32}, 3, 0), std::runtime_error);
}

}  // namespace
}  // namespace tessera::kernels::cuda
