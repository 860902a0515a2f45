#include <gtest/gtest.h>

#include "isa.h"
#include "reference.h"

using namespace tessera::kernels;
using reference::Doubles;
using reference::doubles;
using reference::Floats;

namespace {

struct RowKernels : ::testing::TestWithParam<Isa> {
  const Table& k = table(GetParam());
};

TEST_P(RowKernels, SoftmaxCrossEntropyLossAndGradient) {
  for (const std::int64_t columns : {1, 5, 16, 63, 64, 97, 1000}) {
    const std::int64_t rows = 4;
    std::vector<std::int64_t> targets{columns - 1, -100, 0, columns / 2};
    Floats x = reference::random(rows * columns, 3, 5);
    if (columns > 5) x[5] = 90, x[7] = -300;  // far apart: no overflow, no NaN
    const Floats before = x;
    auto x2 = doubles(x);
    const double expected = reference::softmax_cross_entropy(x2, targets, columns, 0.25);
    EXPECT_NEAR(k.softmax_cross_entropy(x.data(), targets.data(), rows, columns, 0.25f, false), expected,
                1e-6 * (1 + expected))
        << columns;
    EXPECT_EQ(x, before) << "without a gradient the logits must not change";
    EXPECT_NEAR(k.softmax_cross_entropy(x.data(), targets.data(), rows, columns, 0.25f, true), expected,
                1e-6 * (1 + expected))
        << columns;
    EXPECT_LT(reference::error(x, x2, 0.01), 3e-6) << columns;
  }
}

TEST_P(RowKernels, GeluAndItsGradient) {
  for (const std::int64_t columns : {1, 17, 64, 100}) {
    const std::int64_t rows = 19;
    Floats x = reference::random(rows * columns, 4, 3), y(x.size()), dx(x.size()), dbias(columns, 0.5f);
    x[0] = -40, x.back() = 40;
    const Floats bias = reference::random(columns, 5), dy = reference::random(rows * columns, 6);
    Doubles y2(x.size()), dx2(x.size()), dbias2(columns, 0.5);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double u = static_cast<double>(x[i]) + bias[i % columns];
      y2[i] = reference::gelu(u), dx2[i] = dy[i] * reference::gelu_slope(u), dbias2[i % columns] += dx2[i];
    }
    k.gelu_tanh(x.data(), bias.data(), y.data(), rows, columns);
    k.gelu_tanh_backward(x.data(), bias.data(), dy.data(), dx.data(), dbias.data(), rows, columns);
    EXPECT_LT(reference::error(y, y2), 1e-6) << columns;
    EXPECT_LT(reference::error(dx, dx2), 2e-6) << columns;
    EXPECT_LT(reference::error(dbias, dbias2), 6e-6) << columns;
    k.gelu_tanh(x.data(), nullptr, x.data(), 1, 1);  // in place, without a bias
    EXPECT_NEAR(x[0], 0, 1e-6);
  }
}

TEST_P(RowKernels, LayerNormWithResidual) {
  for (const std::int64_t columns : {1, 16, 33, 256}) {
    const std::int64_t rows = 11, n = rows * columns;
    const double eps = 1e-5;
    const Floats x = reference::random(n, 7, 2, 1), delta = reference::random(n, 8),
                 extra = reference::random(columns, 9);
    const Floats w = reference::random(columns, 10), b = reference::random(columns, 11), dy = reference::random(n, 12),
                 dsum = reference::random(n, 13);
    Floats sum(n), y(n), mean(rows), rstd(rows), dx(n), dw(columns, 1), db(columns, 2), dd(columns, 3);
    k.layer_norm(
        {x.data(), delta.data(), extra.data(), w.data(), b.data(), eps, sum.data(), y.data(), mean.data(), rstd.data()},
        rows, columns);
    k.layer_norm_backward({sum.data(), dy.data(), dsum.data(), w.data(), mean.data(), rstd.data(), dx.data(), dw.data(),
                           db.data(), dd.data()},
                          rows, columns);

    Doubles sum2(n), y2(n), dx2(n), dw2(columns, 1), db2(columns, 2), dd2(columns, 3);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t o = r * columns;
      double m = 0, var = 0, g_mean = 0, gn_mean = 0;
      for (std::int64_t c = 0; c < columns; ++c)
        m += (sum2[o + c] = static_cast<double>(x[o + c]) + delta[o + c] + extra[c]) / columns;
      for (std::int64_t c = 0; c < columns; ++c) var += (sum2[o + c] - m) * (sum2[o + c] - m) / columns;
      const double s = 1 / std::sqrt(var + eps);
      const auto normed = [&](std::int64_t c) { return (sum2[o + c] - m) * s; };
      for (std::int64_t c = 0; c < columns; ++c) {
        y2[o + c] = normed(c) * w[c] + b[c];
        g_mean += static_cast<double>(dy[o + c]) * w[c] / columns;
        gn_mean += static_cast<double>(dy[o + c]) * w[c] * normed(c) / columns;
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        dx2[o + c] = dsum[o + c] + s * (static_cast<double>(dy[o + c]) * w[c] - g_mean - normed(c) * gn_mean);
        dw2[c] += dy[o + c] * normed(c), db2[c] += dy[o + c], dd2[c] += dx2[o + c];
      }
    }
    EXPECT_LT(reference::error(sum, sum2), 1e-6) << columns;
    if (columns == 1) continue;  // the variance of one element is rounding noise times 1/sqrt(eps)
    EXPECT_LT(reference::error(y, y2), 1e-5) << columns;
    EXPECT_LT(reference::error(dx, dx2), 1e-5) << columns;
    EXPECT_LT(reference::error(dw, dw2), 1e-5) << columns;
    EXPECT_LT(reference::error(db, db2), 1e-5) << columns;
    EXPECT_LT(reference::error(dd, dd2), 1e-5) << columns;
  }
}

TEST_P(RowKernels, LayerNormWithoutResidual) {
  const std::int64_t rows = 3, columns = 40, n = rows * columns;
  const Floats x = reference::random(n, 14, 1, 5), w = reference::random(columns, 15),
               b = reference::random(columns, 16), dy = reference::random(n, 17);
  Floats sum(n), y(n), y_alone(n), mean(rows), rstd(rows), zero(n), dx(n), dx_alone(n), dw(columns), db(columns);
  k.layer_norm(
      {x.data(), zero.data(), nullptr, w.data(), b.data(), 1e-5, sum.data(), y.data(), mean.data(), rstd.data()}, rows,
      columns);
  k.layer_norm(
      {x.data(), nullptr, nullptr, w.data(), b.data(), 1e-5, nullptr, y_alone.data(), mean.data(), rstd.data()}, rows,
      columns);
  EXPECT_EQ(y, y_alone);
  EXPECT_EQ(sum, x);
  k.layer_norm_backward(
      {x.data(), dy.data(), zero.data(), w.data(), mean.data(), rstd.data(), dx.data(), dw.data(), db.data(), nullptr},
      rows, columns);
  k.layer_norm_backward({x.data(), dy.data(), nullptr, w.data(), mean.data(), rstd.data(), dx_alone.data(), dw.data(),
                         db.data(), nullptr},
                        rows, columns);
  EXPECT_EQ(dx, dx_alone);
}

TEST_P(RowKernels, ColumnSumsAndAddedRows) {
  for (const std::int64_t columns : {1, 16, 50}) {
    const std::int64_t rows = 21, n = rows * columns;
    const Floats x = reference::random(n, 18), delta = reference::random(n, 19), bias = reference::random(columns, 20);
    Floats sums(columns, 1), y(n), plain(n);
    Doubles sums2(columns, 1), y2(n);
    for (std::int64_t i = 0; i < n; ++i)
      sums2[i % columns] += x[i], y2[i] = static_cast<double>(x[i]) + delta[i] + bias[i % columns];
    k.column_sums(x.data(), sums.data(), rows, columns);
    k.add_rows(x.data(), delta.data(), bias.data(), y.data(), rows, columns);
    k.add_rows(x.data(), nullptr, nullptr, plain.data(), rows, columns);
    EXPECT_LT(reference::error(sums, sums2), 2e-6);
    EXPECT_LT(reference::error(y, y2), 1e-6);
    EXPECT_EQ(plain, x);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, RowKernels, ::testing::ValuesIn(runnable()), name_of);

}  // namespace
