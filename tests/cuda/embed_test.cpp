// Token embeddings plus position embeddings on the host's CUDA.
#include <tessera/kernels/cuda/embed.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

#include <stdexcept>

namespace {

using namespace cuda_tests;
namespace cuda = tessera::kernels::cuda;

struct Case {
  std::int64_t rows, columns, vocabulary, period;
  Real type = f;
  int shift = 0;
};
const Case cases[] = {{1, 1, 1, 1},        {6, 5, 9, 3},           {40, 64, 7, 10},      {33, 1100, 50, 11},
                      {12, 36, 100, 6, b}, {12, 36, 100, 6, b, 1}, {12, 8, 5, 12, f, 2}, {132 * 32 + 7, 3, 20, 9}};

TEST(CudaEmbed, TokensPlusPlaces) {
  for (const Case& c : cases) {
    const Numbers tokens(c.type, reference::random(c.vocabulary * c.columns, 1), c.shift),
        places(c.type, reference::random(c.period * c.columns, 2), c.shift);
    const Doubles of_token = tokens.values(), of_place = places.values();
    std::vector<std::int64_t> ids;
    Doubles want;
    for (std::int64_t row = 0; row < c.rows; ++row) {
      ids.push_back(row * 7919 % c.vocabulary);
      for (std::int64_t column = 0; column < c.columns; ++column)
        want.push_back(of_token[static_cast<std::size_t>(ids.back() * c.columns + column)] +
                       of_place[static_cast<std::size_t>(row % c.period * c.columns + column)]);
    }
    Numbers y(c.type, c.rows * c.columns, c.shift);
    cuda::embedded_sum({ids.data(), tokens, places, y, c.vocabulary, c.period}, c.rows, c.columns, nullptr);
    EXPECT_LE(reference::error(y.values(), want), limit(c.type, 1e-7)) << c.rows << " x " << c.columns;
  }
}

TEST(CudaEmbed, AnIdBesideTheTableStopsTheDevice) {
  const Numbers table(f, reference::random(8, 1));
  Numbers y(f, 4);
  for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{2}})
    EXPECT_THROW(cuda::embedded_sum({&id, table, table, y, 2, 1}, 1, 4, nullptr), std::runtime_error) << id;
}

}  // namespace
