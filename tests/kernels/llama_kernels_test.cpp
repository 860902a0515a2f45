#include <gtest/gtest.h>

#include "isa.h"
#include "reference.h"

using namespace tessera::kernels;
using reference::Doubles;
using reference::doubles;
using reference::Floats;

namespace {

struct LlamaKernels : ::testing::TestWithParam<Isa> {
  const Table& k = table(GetParam());
};

TEST_P(LlamaKernels, RmsNormWithResidual) {
  for (const std::int64_t columns : {1, 16, 33, 256}) {
    const std::int64_t rows = 11, n = rows * columns;
    const double eps = 1e-5;
    const Floats x = reference::random(n, 7, 2, 1), delta = reference::random(n, 8), w = reference::random(columns, 10),
                 dy = reference::random(n, 12), dsum = reference::random(n, 13);
    Floats sum(n), y(n), rstd(rows), dx(n), dw(columns, 1);
    k.rms_norm({x.data(), delta.data(), w.data(), eps, sum.data(), y.data(), rstd.data()}, rows, columns);
    k.rms_norm_backward({sum.data(), dy.data(), dsum.data(), w.data(), rstd.data(), dx.data(), dw.data()}, rows,
                        columns);
    Doubles sum2(n), y2(n), dx2(n), dw2(columns, 1);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t o = r * columns;
      double square = 0, gn = 0;
      for (std::int64_t c = 0; c < columns; ++c) {
        sum2[o + c] = static_cast<double>(x[o + c]) + delta[o + c];
        square += sum2[o + c] * sum2[o + c] / columns;
      }
      const double s = 1 / std::sqrt(square + eps);
      for (std::int64_t c = 0; c < columns; ++c) {
        y2[o + c] = sum2[o + c] * s * w[c];
        gn += static_cast<double>(dy[o + c]) * w[c] * sum2[o + c] * s / columns;
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        dx2[o + c] = dsum[o + c] + s * (static_cast<double>(dy[o + c]) * w[c] - sum2[o + c] * s * gn);
        dw2[c] += dy[o + c] * sum2[o + c] * s;
      }
    }
    EXPECT_LT(reference::error(sum, sum2), 1e-6) << columns;
    EXPECT_LT(reference::error(y, y2), 2e-6) << columns;
    EXPECT_LT(reference::error(dx, dx2), 1e-5) << columns;
    EXPECT_LT(reference::error(dw, dw2), 1e-5) << columns;
  }
}

TEST_P(LlamaKernels, RmsNormAloneIsThatWithAZeroResidual) {
  const std::int64_t rows = 3, columns = 40, n = rows * columns;
  const Floats x = reference::random(n, 14, 1, 5), w = reference::random(columns, 15), dy = reference::random(n, 17);
  Floats sum(n), y(n), y_alone(n), rstd(rows), zero(n), dx(n), dx_alone(n), dw(columns);
  k.rms_norm({x.data(), zero.data(), w.data(), 1e-5, sum.data(), y.data(), rstd.data()}, rows, columns);
  k.rms_norm({x.data(), nullptr, w.data(), 1e-5, nullptr, y_alone.data(), rstd.data()}, rows, columns);
  EXPECT_EQ(y, y_alone);
  EXPECT_EQ(sum, x);
  k.rms_norm_backward({x.data(), dy.data(), zero.data(), w.data(), rstd.data(), dx.data(), dw.data()}, rows, columns);
  k.rms_norm_backward({x.data(), dy.data(), nullptr, w.data(), rstd.data(), dx_alone.data(), dw.data()}, rows, columns);
  EXPECT_EQ(dx, dx_alone);
}

TEST_P(LlamaKernels, SwiGluAndItsGradient) {
  for (const std::int64_t n : {1, 16, 33, 1000}) {
    Floats gate = reference::random(n, 20, 3), y(n), dgate(n), dup(n);
    gate[0] = -60;
    if (n > 1) gate[1] = 60;
    const Floats up = reference::random(n, 21), dy = reference::random(n, 22);
    Doubles y2(n), dgate2(n), dup2(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const double g = gate[i], sigmoid = 1 / (1 + std::exp(-g));
      y2[i] = g * sigmoid * up[i];
      dgate2[i] = dy[i] * static_cast<double>(up[i]) * sigmoid * (1 + g * (1 - sigmoid));
      dup2[i] = dy[i] * g * sigmoid;
    }
    k.swiglu(gate.data(), up.data(), y.data(), n);
    k.swiglu_backward(gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), n);
    EXPECT_LT(reference::error(y, y2), 2e-6) << n;
    EXPECT_LT(reference::error(dgate, dgate2), 2e-6) << n;
    EXPECT_LT(reference::error(dup, dup2), 2e-6) << n;
  }
}

TEST_P(LlamaKernels, RotaryTurnsHalvesAndBack) {
  for (const std::int64_t size : {2, 16, 34, 64}) {
    const std::int64_t tokens = 10, heads = 3, period = 5, half = size / 2, stride = heads * size;
    const Floats x = reference::random(tokens * stride, 23), angle = reference::random(period * half, 24, 3);
    Floats cos(angle.size()), sin(angle.size()), y(x.size()), back(x.size());
    for (std::size_t i = 0; i < angle.size(); ++i) cos[i] = std::cos(angle[i]), sin[i] = std::sin(angle[i]);
    k.rotary({x.data(), cos.data(), sin.data(), y.data(), stride, stride, period, 1}, 0, 4, heads, size);
    k.rotary({x.data(), cos.data(), sin.data(), y.data(), stride, stride, period, 1}, 4, tokens, heads, size);
    Doubles y2(x.size());
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < half; ++i) {
          const double c = cos[t % period * half + i], s = sin[t % period * half + i];
          const std::int64_t low = t * stride + h * size + i, high = low + half;
          y2[low] = x[low] * c - x[high] * s;
          y2[high] = x[high] * c + x[low] * s;
        }
    EXPECT_LT(reference::error(y, y2), 1e-6) << size;
    k.rotary({y.data(), cos.data(), sin.data(), back.data(), stride, stride, period, -1}, 0, tokens, heads, size);
    EXPECT_LT(reference::error(back, doubles(x)), 1e-6) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, LlamaKernels, ::testing::ValuesIn(runnable()), name_of);

}  // namespace
