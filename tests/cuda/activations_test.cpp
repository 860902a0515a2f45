// GELU and SwiGLU on the host's CUDA, compared with double precision: odd sizes, unaligned rows, both types.
#include <tessera/kernels/cuda/gelu.h>
#include <tessera/kernels/cuda/swiglu.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

namespace {

using namespace cuda_tests;
namespace cuda = tessera::kernels::cuda;

struct Case {
  std::int64_t rows, columns;
  Real type = f, bias = f;
  int shift = 0;
  bool has_bias = true;
};
const Case cases[] = {{1, 1},
                      {3, 5},
                      {37, 64},
                      {2, 1100},
                      {35, 257},
                      {70, 36},
                      {19, 64, b},
                      {19, 63, b},
                      {19, 64, b, b},
                      {5, 64, f, f, 1},
                      {5, 64, b, f, 1},
                      {5, 64, b, f, 2},
                      {5, 64, f, f, 0, false}};

TEST(CudaGelu, FollowsTheFormula) {
  for (const Case& c : cases) {
    Floats given = reference::random(c.rows * c.columns, 4, 3);
    given[0] = -40, given.back() = 40;
    const Numbers x(c.type, given, c.shift), bias(c.bias, reference::random(c.columns, 5)),
        dy(c.type, reference::random(c.rows * c.columns, 6), c.shift);
    const Doubles x2 = x.values(), bias2 = bias.values(), dy2 = dy.values();
    Doubles y2, dx2, dbias2(static_cast<std::size_t>(c.columns));
    for (std::size_t i = 0; i < x2.size(); ++i) {
      const std::size_t column = i % dbias2.size();
      const double u = x2[i] + (c.has_bias ? bias2[column] : 0);
      y2.push_back(reference::gelu(u)), dx2.push_back(dy2[i] * reference::gelu_slope(u)), dbias2[column] += dx2[i];
    }
    in_each_order([&] {
      Numbers y(c.type, c.rows * c.columns, c.shift), dx(c.type, c.rows * c.columns, c.shift), dbias(c.bias, c.columns),
          partial(f, cuda::gelu_partial_sums(c.rows, c.columns));
      const ConstReals given_bias = c.has_bias ? bias.read() : ConstReals{};
      cuda::gelu_tanh(x, given_bias, y, c.rows, c.columns, nullptr);
      cuda::gelu_tanh_backward({.x = x,
                                .bias = given_bias,
                                .dy = dy,
                                .dx = dx,
                                .dbias = c.has_bias ? dbias.write() : Reals{},
                                .partial = c.has_bias ? partial.floats() : nullptr},
                               c.rows, c.columns, nullptr);
      EXPECT_LT(reference::error(y.values(), y2), limit(c.type, 1e-6)) << c.rows << " x " << c.columns;
      EXPECT_LT(reference::error(dx.values(), dx2), limit(c.type, 2e-6)) << c.rows << " x " << c.columns;
      if (c.has_bias)
        EXPECT_LT(reference::error(dbias.values(), dbias2), limit(c.bias, 6e-6)) << c.rows << " x " << c.columns;
    });
  }
}

TEST(CudaGelu, InPlace) {
  const Floats given = reference::random(3 * 8, 1, 2), gradient = reference::random(3 * 8, 2);
  Numbers x(f, given), y(f, 3 * 8), dy(f, gradient), dx(f, 3 * 8);
  cuda::gelu_tanh_backward({.x = x, .dy = dy, .dx = dx}, 3, 8, nullptr);
  cuda::gelu_tanh_backward({.x = x, .dy = dy, .dx = dy}, 3, 8, nullptr);
  EXPECT_EQ(dy.values(), dx.values());
  cuda::gelu_tanh(x, {}, y, 3, 8, nullptr);
  cuda::gelu_tanh(x, {}, x, 3, 8, nullptr);
  EXPECT_EQ(x.values(), y.values());
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(CudaSwiglu, FollowsTheFormula) {
  for (const std::int64_t n : {1, 3, 255, 1024, 2500, 132 * 16 * 256 + 3}) {
    for (const Real type : {f, b}) {
      for (const int shift : {0, 1}) {
        if (n > 3000 && (shift == 0 || type == b)) continue;  // one long case
        Floats given = reference::random(n, 1, 3);
        given[0] = -95, given.back() = 95;
        const Numbers gate(type, given, shift), up(type, reference::random(n, 2), shift),
            dy(type, reference::random(n, 3), shift);
        const Doubles g = gate.values(), u = up.values(), d = dy.values();
        Doubles y2, dgate2, dup2;
        for (std::size_t i = 0; i < g.size(); ++i) {
          const double s = sigmoid(g[i]);
          y2.push_back(g[i] * s * u[i]), dup2.push_back(d[i] * g[i] * s);
          dgate2.push_back(d[i] * u[i] * s * (1 + g[i] * (1 - s)));
        }
        const auto check = [&] {
          Numbers y(type, n, shift), dgate(type, n, shift), dup(type, n, shift);
          cuda::swiglu(gate, up, y, n, nullptr);
          cuda::swiglu_backward({gate, up, dy, dgate, dup}, n, nullptr);
          EXPECT_LT(reference::error(y.values(), y2), limit(type, 1e-6)) << n;
          EXPECT_LT(reference::error(dgate.values(), dgate2), limit(type, 1e-6)) << n;
          EXPECT_LT(reference::error(dup.values(), dup2), limit(type, 1e-6)) << n;
        };
        n > 3000 ? check() : in_each_order(check);
      }
    }
  }
}

TEST(CudaSwiglu, TypesMayDifferAndPlacesBeShared) {
  const Floats given = reference::random(64, 1);
  Numbers gate(b, given), up(f, reference::random(64, 2)), dy(f, reference::random(64, 3)), y(f, 64), dgate(b, 64),
      dup(f, 64);
  cuda::swiglu(gate, up, y, 64, nullptr);
  cuda::swiglu_backward({gate, up, dy, dgate, dup}, 64, nullptr);
  Doubles expected;
  for (std::size_t i = 0; i < 64; ++i)
    expected.push_back(gate.values()[i] * sigmoid(gate.values()[i]) * up.values()[i]);
  EXPECT_LT(reference::error(y.values(), expected), 1e-6);
  cuda::swiglu_backward({gate, up, dy, gate, up}, 64, nullptr);
  EXPECT_EQ(gate.values(), dgate.values());
  EXPECT_EQ(up.values(), dup.values());
}

}  // namespace
