// Products of groups of rows, compared with sums in double precision.
#include <tessera/kernels/cuda/group_products.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tessera::kernels::cuda {
namespace {

using cuda_tests::Doubles;
using cuda_tests::Floats;
using cuda_tests::in_each_order;
using Sizes = std::vector<std::int64_t>;

struct Case {
  Sizes groups;  // rows of each
  std::int64_t inner, columns;

  std::int64_t rows() const { return std::accumulate(groups.begin(), groups.end(), std::int64_t{0}); }
  std::int64_t count() const { return static_cast<std::int64_t>(groups.size()); }
  std::vector<std::int32_t> ends() const {
    std::vector<std::int32_t> ends;
    for (const std::int64_t size : groups)
      ends.push_back(static_cast<std::int32_t>(size) + (ends.empty() ? 0 : ends.back()));
    return ends;
  }
};

/// Tiles have 128 and 8 numbers: groups and matrices that are smaller, exactly one tile, and larger.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{5, 0, 131, 1}, 24, 40}, {{128, 256, 3}, 8, 128}, {{0, 0, 9}, 17, 129}, {{1}, 1, 1}, {{70, 0}, 133, 3}};
  return all;
}

Floats random(std::int64_t count, unsigned seed) { return reference::random(count, seed); }
double at(const Floats& x, std::int64_t i) { return x[static_cast<std::size_t>(i)]; }

/// Compares each result with its expected value, a sum of `terms` numbers.
void expect_close(const Floats& got, const Doubles& want, std::int64_t terms, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-6 * static_cast<double>(terms + 4)) << what << " number " << i;
}

/// In exactly sized memory, so that AddressSanitizer detects an access outside it.
Floats unset(std::int64_t count) {
  Floats all(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN());
  all.shrink_to_fit();
  return all;
}

TEST(CudaGroupProducts, Rows) {
  for (const Case& c : cases()) {
    for (const bool transposed : {false, true}) {
      const Floats x = random(c.rows() * c.inner, 1), w = random(c.count() * c.inner * c.columns, 2);
      const auto ends = c.ends();
      Doubles want;
      for (std::int64_t row = 0; row < c.rows(); ++row) {
        const std::int64_t group = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
        for (std::int64_t j = 0; j < c.columns; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < c.inner; ++k)
            sum += at(x, row * c.inner + k) *
                   at(w, group * c.inner * c.columns + (transposed ? j * c.inner + k : k * c.columns + j));
          want.push_back(sum);
        }
      }
      in_each_order([&] {
        Floats y = unset(c.rows() * c.columns);
        group_rows({.x = x.data(), .weights = w.data(), .ends = ends.data(), .y = y.data(), .transposed = transposed},
                   c.rows(), c.inner, c.columns, c.count(), nullptr);
        expect_close(y, want, c.inner, transposed ? "transposed" : "straight");
      });
    }
  }
}

TEST(CudaGroupProducts, Sums) {
  for (const Case& c : cases()) {
    const Floats left = random(c.rows() * c.inner, 3), right = random(c.rows() * c.columns, 4);
    const auto ends = c.ends();
    Doubles want(static_cast<std::size_t>(c.count() * c.inner * c.columns), 0);
    for (std::int64_t row = 0; row < c.rows(); ++row) {
      const std::int64_t group = std::upper_bound(ends.begin(), ends.end(), row) - ends.begin();
      for (std::int64_t i = 0; i < c.inner; ++i)
        for (std::int64_t j = 0; j < c.columns; ++j)
          want[static_cast<std::size_t>((group * c.inner + i) * c.columns + j)] +=
              at(left, row * c.inner + i) * at(right, row * c.columns + j);
    }
    in_each_order([&] {
      Floats sums = unset(c.count() * c.inner * c.columns);
      group_sums({.left = left.data(), .right = right.data(), .ends = ends.data(), .sums = sums.data()}, c.rows(),
                 c.inner, c.columns, c.count(), nullptr);
      expect_close(sums, want, *std::max_element(c.groups.begin(), c.groups.end()), "sums");
    });
  }
}

/// A row's result has the same bits whichever rows share its group or come before it.
TEST(CudaGroupProducts, RowsDoNotDependOnOtherRows) {
  constexpr std::int64_t rows = 150, inner = 50, columns = 20;
  const Floats x = random(rows * inner, 5), w = random(inner * columns, 6);
  Floats two = w;
  two.insert(two.end(), w.begin(), w.end());
  const std::vector<std::int32_t> one{rows}, cut{67, rows};
  Floats whole = unset(rows * columns), parts = whole;
  group_rows({.x = x.data(), .weights = w.data(), .ends = one.data(), .y = whole.data(), .transposed = true}, rows,
             inner, columns, 1, nullptr);
  group_rows({.x = x.data(), .weights = two.data(), .ends = cut.data(), .y = parts.data(), .transposed = true}, rows,
             inner, columns, 2, nullptr);
  EXPECT_EQ(whole, parts);
}

}  // namespace
}  // namespace tessera::kernels::cuda
