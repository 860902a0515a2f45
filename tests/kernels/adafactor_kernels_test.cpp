#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/kernels/cpu/binned_sums.h>

#include <cmath>
#include <random>

#include "isa.h"
#include "reference.h"

using namespace tessera::kernels;
using reference::doubles;
using reference::Floats;

namespace {

struct AdafactorKernels : ::testing::TestWithParam<Isa> {
  const Table& k = table(GetParam());
};

/// Numbers of widely different magnitudes.
Floats spread(std::int64_t n, unsigned seed, float low, float high) {
  std::mt19937 engine(seed);
  Floats x = reference::random(n, seed + 1);
  std::uniform_real_distribution<float> exponent(low, high);
  for (float& v : x) v *= std::exp2(exponent(engine));
  return x;
}

struct Sums {
  std::vector<double> rows, columns;
  bool operator==(const Sums&) const = default;
};

/// A batch of matrices [rows / period, period, columns], cut into ranges at `cuts`, added in the given order.
Sums binned(const Table& k, const Floats& g, std::int64_t rows, std::int64_t columns, std::int64_t period,
            const std::vector<std::int64_t>& cuts) {
  const std::int64_t all = rows / period * columns;
  std::vector<double> row_bins(bin_count * rows), column_bins(bin_count * all + 8, 0.0);
  for (int i = 0; i < 8; ++i) column_bins[bin_count * all + i] = 3.25;  // not ours
  std::int64_t begin = 0;
  for (const std::int64_t cut : cuts) {
    k.bin_squares(g.data() + begin, 1, begin, cut - begin,
                  {row_bins.data(), rows, column_bins.data(), all, columns, period});
    carry_bins(column_bins.data(), all);
    begin = cut;
  }
  for (int i = 0; i < 8; ++i) EXPECT_EQ(column_bins[bin_count * all + i], 3.25);
  Sums sums{std::vector<double>(rows), std::vector<double>(all)};
  bin_values(row_bins.data(), rows, sums.rows.data());
  bin_values(column_bins.data(), all, sums.columns.data());
  return sums;
}

TEST_P(AdafactorKernels, SumsOfSquaresAreThoseOfLongDoubles) {
  struct Shape {
    std::int64_t rows, columns, period;
  };
  for (const Shape s : {Shape{1, 1, 1}, {3, 5, 3}, {7, 64, 7}, {5, 100, 5}, {6, 7, 3}, {4, 9000, 2}, {300, 3, 300}})
    for (const float low : {-1.0f, -20.0f, -60.0f}) {
      const Floats g = spread(s.rows * s.columns, 7, low, 1);
      std::vector<long double> rows(s.rows), columns(s.rows / s.period * s.columns);
      for (std::int64_t r = 0; r < s.rows; ++r)
        for (std::int64_t c = 0; c < s.columns; ++c) {
          const float square = g[r * s.columns + c] * g[r * s.columns + c];
          rows[r] += square;
          columns[r / s.period * s.columns + c] += square;
        }
      const Sums sums = binned(k, g, s.rows, s.columns, s.period, {s.rows * s.columns});
      for (std::size_t i = 0; i < rows.size(); ++i)
        EXPECT_NEAR(sums.rows[i], static_cast<double>(rows[i]), 1e-15 * static_cast<double>(rows[i])) << i;
      for (std::size_t i = 0; i < columns.size(); ++i)
        EXPECT_NEAR(sums.columns[i], static_cast<double>(columns[i]), 1e-15 * static_cast<double>(columns[i]));
    }
}

TEST_P(AdafactorKernels, SumsOfSquaresHaveTheSameBitsForEveryCutAndInstructionSet) {
  rc::check([&] {
    const auto period = *rc::gen::inRange<std::int64_t>(1, 6), columns = *rc::gen::inRange<std::int64_t>(1, 200);
    const std::int64_t rows = period * *rc::gen::inRange<std::int64_t>(1, 4), n = rows * columns;
    const Floats g = spread(n, *rc::gen::inRange(0u, 1000u), *rc::gen::element(-70.0f, -5.0f, 0.0f),
                            *rc::gen::element(1.0f, 30.0f, 60.0f));
    const Sums whole = binned(table(Isa::baseline), g, rows, columns, period, {n});
    auto cuts = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, n + 1));
    cuts.push_back(n);
    std::sort(cuts.begin(), cuts.end());
    RC_ASSERT(binned(k, g, rows, columns, period, cuts) == whole);
  });
}

TEST(BinnedSums, MergedAndAddedAsRanksDoTheyAreTheSame) {
  rc::check([] {
    const std::int64_t count = *rc::gen::inRange<std::int64_t>(1, 20), rows = 40;
    const Floats g = spread(rows * count, *rc::gen::inRange(0u, 1000u), -60, 20);
    const int parts = *rc::gen::inRange(1, 6);
    const auto bins_of = [&](const auto& mine) {
      std::vector<double> row_bins(bin_count * rows), bins(bin_count * count + 8);
      for (std::int64_t r = 0; r < rows; ++r)
        if (mine(r))
          table(Isa::baseline)
              .bin_squares(g.data() + r * count, 1, r * count, count,
                           {row_bins.data(), rows, bins.data(), count, count, rows});
      carry_bins(bins.data(), count);
      bins.resize(bin_count * count);
      return bins;
    };
    const auto values = [&](std::vector<double> bins) {
      std::vector<double> out(count);
      bin_values(bins.data(), count, out.data());
      return out;
    };
    const std::vector<double> whole = bins_of([](std::int64_t) { return true; });
    std::vector<double> merged(bin_count * count), added(bin_count * count);
    for (int part = 0; part < parts; ++part) {
      const auto bins = bins_of([&](std::int64_t r) { return (r * 7 + 3) % parts == part; });
      merge_bins(merged.data(), count, bins.data(), count, count);
      for (std::size_t i = 0; i < bins.size(); ++i) added[i] += bins[i];
    }
    RC_ASSERT(values(merged) == values(whole));
    RC_ASSERT(values(added) == values(whole));
  });
}

TEST(BinnedSums, SumsOf65536RanksAreExact) {
  const Floats g = {1e19f, 1e-20f};  // the square of the first is just below the largest float
  std::vector<double> row_bins(2 * bin_count), bins(bin_count + 8);
  table(Isa::baseline).bin_squares(g.data(), 1, 0, 2, {row_bins.data(), 2, bins.data(), 1, 1, 2});
  carry_bins(bins.data(), 1);
  std::vector<double> added(bin_count);
  for (int rank = 0; rank < 1 << 16; ++rank)
    for (int j = 0; j < bin_count; ++j) added[j] += bins[j];
  for (int j = 0; j < bin_count; ++j) EXPECT_EQ(added[j], bins[j] * 65536) << j;
  double value;
  bin_values(added.data(), 1, &value);
  EXPECT_EQ(value, 65536 * static_cast<double>(1e19f * 1e19f));
}

TEST_P(AdafactorKernels, WhatIsNotFiniteStaysVisible) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Floats g(6 * 20, 1.0f);
    g[3 * 20 + 17] = bad;
    const Sums sums = binned(k, g, 6, 20, 6, {120});
    for (int r = 0; r < 6; ++r) EXPECT_EQ(std::isfinite(sums.rows[r]), r != 3) << r;
    for (int c = 0; c < 20; ++c) EXPECT_EQ(std::isfinite(sums.columns[c]), c != 17) << c;
  }
}

TEST_P(AdafactorKernels, DirectionsAndUpdatesFollowTheFormulas) {
  const std::int64_t rows = 6, columns = 37, period = 3, n = rows * columns;
  const Floats g = reference::random(n, 1), row = reference::random(rows, 2),
               column = reference::random(2 * columns, 3);
  for (const std::int64_t begin : {0, 5, 64}) {
    Floats u(n - begin);
    k.factored_direction(g.data() + begin, 0.5f, begin, n - begin, {row.data(), column.data(), columns, period},
                         u.data());
    for (std::int64_t i = begin; i < n; ++i) {
      const double expected =
          static_cast<double>(row[i / columns]) * column[i / columns / period * columns + i % columns] * 0.5 * g[i];
      EXPECT_NEAR(u[i - begin], expected, 3e-7 * std::abs(expected)) << begin << " " << i;
    }
  }
  Floats v(n, 0.25f), u(n), p = reference::random(n, 4), m = reference::random(n, 5), q = p;
  const Floats p_before = p, m_before = m;
  k.adafactor_moment(g.data(), 0.5f, v.data(), n, 0.1, 1e-3);
  k.adafactor_direction(g.data(), 0.5f, v.data(), n, u.data());
  k.adafactor_apply(p.data(), u.data(), nullptr, n, {.rate = 0.3, .decay = 0.01, .beta1 = 0});
  k.adafactor_apply(q.data(), u.data(), m.data(), n, {.rate = 0.3, .decay = 0.01, .beta1 = 0.9});
  for (std::int64_t i = 0; i < n; ++i) {
    const double gi = 0.5 * g[i], vi = 0.9 * 0.25 + 0.1 * (gi * gi + 1e-3), ui = gi / std::sqrt(vi);
    EXPECT_NEAR(v[i], vi, 1e-6 * vi) << i;
    EXPECT_NEAR(u[i], ui, 1e-6 * std::abs(ui)) << i;
    EXPECT_NEAR(p[i], 0.99 * p_before[i] - 0.3 * ui, 1e-6) << i;
    const double mi = 0.9 * m_before[i] + 0.1 * 0.3 * ui;
    EXPECT_NEAR(m[i], mi, 1e-6) << i;
    EXPECT_NEAR(q[i], 0.99 * p_before[i] - mi, 1e-6) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, AdafactorKernels, ::testing::ValuesIn(runnable()), name_of);

}  // namespace
