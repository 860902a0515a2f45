// Matrices joined side by side on the host's CUDA, and their column sums.
#include <tessera/kernels/cuda/join_columns.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

namespace {

using namespace cuda_tests;
namespace cuda = tessera::kernels::cuda;

struct Case {
  int parts;
  std::int64_t rows, columns;
  Real from = f, to = f;
  int shift = 0;
  bool sums = true;
};
const Case cases[] = {{3, 1, 1},        {3, 70, 8},           {2, 37, 12},          {1, 5, 3},
                      {3, 35, 257},     {3, 40, 32, b, b},    {3, 9, 500, b, b},    {2, 19, 20, f, b},
                      {3, 18, 6, b, f}, {3, 33, 16, b, b, 1}, {3, 33, 16, f, f, 2}, {3, 33, 16, b, b, 0, false}};

TEST(CudaJoinColumns, PartsSideBySideAndTheirSums) {
  for (const Case& c : cases) {
    const std::int64_t all = c.parts * c.columns;
    std::vector<Numbers> parts;
    for (int p = 0; p < c.parts; ++p)
      parts.emplace_back(c.from, reference::random(c.rows * c.columns, static_cast<unsigned>(p + 1)), c.shift);
    Doubles joined(static_cast<std::size_t>(c.rows * all)), sums(static_cast<std::size_t>(all));
    for (int p = 0; p < c.parts; ++p) {
      const Doubles values = parts[static_cast<std::size_t>(p)].values();
      for (std::int64_t row = 0; row < c.rows; ++row)
        for (std::int64_t column = 0; column < c.columns; ++column) {
          const double x = values[static_cast<std::size_t>(row * c.columns + column)];
          const auto to = static_cast<std::size_t>(p * c.columns + column);
          joined[static_cast<std::size_t>(row * all) + to] = x;
          sums[to] += x;
        }
    }
    in_each_order([&] {
      Numbers to(c.to, c.rows * all, c.shift), of_columns(f, all),
          partial(f, cuda::joined_partial_sums(c.parts, c.rows, c.columns));
      cuda::ColumnJoin a{.parts = c.parts, .joined = to};
      for (int p = 0; p < c.parts; ++p) a.part[p] = parts[static_cast<std::size_t>(p)];
      if (c.sums) a.sums = of_columns, a.partial = partial.floats();
      cuda::join_columns(a, c.rows, c.columns, nullptr);
      EXPECT_LE(reference::error(to.values(), joined), c.from == c.to ? 0 : limit(c.to, 0)) << c.parts << " " << c.rows;
      if (c.sums) EXPECT_LT(reference::error(of_columns.values(), sums), 6e-6) << c.parts << " x " << c.columns;
    });
  }
}

}  // namespace
