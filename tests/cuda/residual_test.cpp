// The end of a residual branch on the host's CUDA, compared with double precision.
#include <tessera/kernels/cuda/residual.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

namespace {

using namespace cuda_tests;
namespace cuda = tessera::kernels::cuda;

struct Case {
  std::int64_t rows, columns;
  Real x = f, delta = f;
  int shift = 0;
  bool has_bias = true;
};
const Case cases[] = {{1, 1},         {3, 5},         {37, 64},         {2, 1100},        {35, 257},
                      {70, 36, f, b}, {19, 63, b, b}, {5, 64, f, b, 1}, {5, 64, b, f, 2}, {5, 64, f, b, 0, false}};

TEST(CudaResidual, FollowsTheFormula) {
  for (const Case& c : cases) {
    const std::int64_t n = c.rows * c.columns;
    const Numbers x(c.x, reference::random(n, 1), c.shift), delta(c.delta, reference::random(n, 2), c.shift),
        bias(f, reference::random(c.columns, 3)), dy(c.x, reference::random(n, 4), c.shift);
    const Doubles x2 = x.values(), delta2 = delta.values(), bias2 = bias.values(), dy2 = dy.values();
    Doubles y2, dbias2(static_cast<std::size_t>(c.columns));
    for (std::size_t i = 0; i < x2.size(); ++i) {
      y2.push_back(x2[i] + delta2[i] + (c.has_bias ? bias2[i % dbias2.size()] : 0));
      dbias2[i % dbias2.size()] += dy2[i];
    }
    in_each_order([&] {
      Numbers y(c.x, n, c.shift), ddelta(c.delta, n, c.shift), dbias(f, c.columns),
          partial(f, cuda::residual_partial_sums(c.rows, c.columns));
      cuda::add_residual({x, delta, c.has_bias ? bias.read() : ConstReals{}, y}, c.rows, c.columns, nullptr);
      cuda::add_residual_backward(
          {dy, ddelta, c.has_bias ? dbias.write() : Reals{}, c.has_bias ? partial.floats() : nullptr}, c.rows,
          c.columns, nullptr);
      EXPECT_LT(reference::error(y.values(), y2), limit(c.x, 1e-6)) << c.rows << " x " << c.columns;
      EXPECT_LT(reference::error(ddelta.values(), dy2), limit(c.delta, 1e-7)) << c.rows << " x " << c.columns;
      if (c.has_bias) EXPECT_LT(reference::error(dbias.values(), dbias2), 6e-6) << c.rows << " x " << c.columns;
    });
  }
}

TEST(CudaResidual, InPlace) {
  Numbers x(f, reference::random(24, 1)), delta(b, reference::random(24, 2)), y(f, 24);
  cuda::add_residual({x, delta, {}, y}, 3, 8, nullptr);
  cuda::add_residual({x, delta, {}, x}, 3, 8, nullptr);
  EXPECT_EQ(x.values(), y.values());
}

}  // namespace
