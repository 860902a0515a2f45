// Normalization of rows on the host's CUDA, compared with double precision: odd sizes, rows too long for registers,
// unaligned rows, both types.
#include <tessera/kernels/cuda/norm.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace cuda_tests;
namespace cuda = tessera::kernels::cuda;

struct Case {
  std::int64_t rows, columns;
  bool centred = true, has_delta = true, has_bias = true;  ///< has_bias: of the delta
  Real x = Real::float32, delta = Real::float32, y = Real::float32, weight = Real::float32;
  int shift = 0;

  std::string name() const {
    return std::to_string(rows) + " x " + std::to_string(columns) + (centred ? " layer" : " rms") +
           (has_delta ? " delta" : "") + (has_bias ? " bias" : "") + " types " + std::to_string(int(x)) +
           std::to_string(int(delta)) + std::to_string(int(y)) + " shift " + std::to_string(shift);
  }
};

const std::vector<Case> cases = [] {
  std::vector<Case> all;
  for (const bool centred : {true, false}) {
    const bool bias = centred;
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {5, 3}, {37, 32}, {70, 64}, {3, 100}, {9, 257}, {2, 768}, {35, 1030}})
      all.push_back({rows, columns, centred, true, bias});
    all.push_back({6, 96, centred, false, false});
    all.push_back({6, 97, centred, true, false});
    for (const int shift : {0, 1, 2}) {
      all.push_back({19, 128, centred, true, bias, f, b, b, f, shift});  // autocast
      all.push_back({19, 128, centred, true, bias, b, b, b, b, shift});
    }
    all.push_back({7, 132, centred, true, bias, f, b, f, f});
    all.push_back({7, 33, centred, false, false, b, b, f, f});  // q and k under autocast
    all.push_back({2, 8193, centred, true, bias});              // more than fits in registers, one at a time
    all.push_back({2, 16400, centred, true, bias, f, b});       // and four
  }
  return all;
}();

/// The inputs of a case.
struct Given {
  Numbers x, delta, delta_bias, weight, bias, dy, dsum;
  Real sum;

  explicit Given(const Case& c)
      : x(c.x, reference::random(c.rows * c.columns, 1, 1, 30), c.shift),  // a large mean would swamp the variance
        delta(c.delta, reference::random(c.rows * c.columns, 2), c.shift),
        delta_bias(c.weight, reference::random(c.columns, 3)),
        weight(c.weight, reference::random(c.columns, 4)),
        bias(c.weight, reference::random(c.columns, 5)),
        dy(c.y, reference::random(c.rows * c.columns, 6), c.shift),
        dsum(c.x, reference::random(c.rows * c.columns, 7), c.shift),
        sum(c.x) {}
};

struct Normed {
  Doubles sum, y, mean, rstd;
};
Normed forward_of(const Case& c, const Given& given) {
  const Doubles x = given.x.values(), d = given.delta.values(), db = given.delta_bias.values(),
                w = given.weight.values(), bias = given.bias.values();
  Normed out;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    double mean = 0, squares = 0;
    for (std::int64_t i = 0; i < c.columns; ++i) {
      const auto at = static_cast<std::size_t>(r * c.columns + i), column = static_cast<std::size_t>(i);
      double sum = x[at];
      // rounded as in the kernel, so that both sides normalize the same row
      if (c.has_delta) {
        const float added =
            c.has_bias ? static_cast<float>(d[at]) + static_cast<float>(db[column]) : static_cast<float>(d[at]);
        sum = nearest(static_cast<float>(sum) + added, given.sum);
      }
      out.sum.push_back(sum);
      mean += sum / static_cast<double>(c.columns);
    }
    if (!c.centred) mean = 0;
    const double* row = out.sum.data() + r * c.columns;
    for (std::int64_t i = 0; i < c.columns; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(c.columns) + 1e-5);
    for (std::int64_t i = 0; i < c.columns; ++i) {
      const auto column = static_cast<std::size_t>(i);
      const double n = (row[i] - mean) * rstd;
      out.y.push_back(n * w[column] + (c.centred ? bias[column] : 0));
    }
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
  }
  return out;
}

TEST(CudaNorm, ForwardFollowsTheFormula) {
  for (const Case& c : cases) {
    const Given given(c);
    const Normed expected = forward_of(c, given);
    in_each_order([&] {
      Numbers sum(given.sum, c.rows * c.columns, c.shift), y(c.y, c.rows * c.columns, c.shift),
          mean(Real::float32, c.rows), rstd(Real::float32, c.rows);
      const ConstReals none;
      cuda::norm({given.x, c.has_delta ? given.delta.read() : none, c.has_bias ? given.delta_bias.read() : none,
                  given.weight, c.centred ? given.bias.read() : none, 1e-5, c.has_delta ? sum.write() : Reals{}, y,
                  c.centred ? mean.floats() : nullptr, rstd.floats()},
                 c.rows, c.columns, nullptr);
      if (c.has_delta) EXPECT_EQ(reference::error(sum.values(), expected.sum), 0) << c.name();
      // A row's mean is 30 times its deviation, so an error of an fp32 mean is magnified 30 times in y.
      const bool narrow = c.y == Real::bfloat16 || (!c.centred && given.sum == Real::bfloat16);
      EXPECT_LT(reference::error(y.values(), expected.y), narrow ? 8e-3 : 2e-5) << c.name();
      if (c.centred) EXPECT_LT(reference::error(mean.values(), expected.mean), 1e-6) << c.name();
      EXPECT_LT(reference::error(rstd.values(), expected.rstd, 0.01), 3e-6) << c.name();
    });
  }
}

TEST(CudaNorm, AddsInPlace) {
  const Case c{.rows = 5, .columns = 64};
  Given given(c);
  const Normed expected = forward_of(c, given);
  Numbers y(Real::float32, 5 * 64), mean(Real::float32, 5), rstd(Real::float32, 5);
  cuda::norm({given.x, given.delta, given.delta_bias, given.weight, given.bias, 1e-5, given.x, y, mean.floats(),
              rstd.floats()},
             5, 64, nullptr);
  EXPECT_EQ(given.x.values(), expected.sum);
  EXPECT_LT(reference::error(y.values(), expected.y), 2e-5);
}

TEST(CudaNorm, RootMeanSquareRoundsBeforeTheWeight) {
  const Floats x = {1, 2, 3, 4.5};
  Numbers narrow(Real::bfloat16, x), weight(Real::float32, {1.1F, 1.2F, 1.3F, 1.4F}), y(Real::float32, 4),
      rstd(Real::float32, 1);
  cuda::norm({.x = narrow, .weight = weight, .y = y, .rstd = rstd.floats()}, 1, 4, nullptr);
  const double scale = 1 / std::sqrt((1 + 4 + 9 + 4.5 * 4.5) / 4);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(static_cast<float>(y.values()[i]),
                    nearest(static_cast<float>(x[i] * scale), Real::bfloat16) * static_cast<float>(weight.values()[i]));
}

struct Gradients {
  Doubles dx, dweight, dbias, ddelta_bias;
};
Gradients backward_of(const Case& c, const Given& given, const Normed& normed, bool has_dsum) {
  const Doubles dy = given.dy.values(), dsum = given.dsum.values(), w = given.weight.values();
  const auto columns = static_cast<std::size_t>(c.columns);
  Gradients out{{}, Doubles(columns), Doubles(columns), Doubles(columns)};
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const auto n = [&](std::size_t i) { return (normed.sum[row * columns + i] - normed.mean[row]) * normed.rstd[row]; };
    double g_average = 0, gn_average = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      const double g = dy[row * columns + i] * w[i];
      g_average += g / static_cast<double>(columns), gn_average += g * n(i) / static_cast<double>(columns);
    }
    if (!c.centred) g_average = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      const std::size_t at = row * columns + i;
      const double dx = (has_dsum ? dsum[at] : 0) + normed.rstd[row] * (dy[at] * w[i] - g_average - n(i) * gn_average);
      out.dx.push_back(dx);
      out.dweight[i] += dy[at] * n(i), out.dbias[i] += dy[at], out.ddelta_bias[i] += dx;
    }
  }
  return out;
}

Numbers narrowed_to_floats(const Doubles& values) { return {Real::float32, Floats(values.begin(), values.end())}; }

TEST(CudaNorm, BackwardFollowsTheFormula) {
  for (const Case& c : cases) {
    const Given given(c);
    const Normed normed = forward_of(c, given);
    const Numbers sum(given.sum, Floats(normed.sum.begin(), normed.sum.end()), c.shift);
    Numbers mean = narrowed_to_floats(normed.mean), rstd = narrowed_to_floats(normed.rstd);
    // Mean and rstd as the kernel reads them, so that both sides start from the same numbers.
    const Normed same{sum.values(), {}, mean.values(), rstd.values()};
    const bool has_dsum = c.has_delta;
    const Gradients expected = backward_of(c, given, same, has_dsum);
    in_each_order([&] {
      const std::int64_t scratch = cuda::norm_partial_sums(c.centred, c.rows, c.columns);
      Numbers dx(c.x, c.rows * c.columns, c.shift), ddelta(c.delta, c.rows * c.columns, c.shift),
          dweight(c.weight, c.columns), dbias(c.weight, c.columns), ddelta_bias(c.weight, c.columns),
          partial(Real::float32, scratch);
      cuda::norm_backward({.sum = sum,
                           .dy = given.dy,
                           .dsum = has_dsum ? given.dsum.read() : ConstReals{},
                           .weight = given.weight,
                           .mean = c.centred ? mean.floats() : nullptr,
                           .rstd = rstd.floats(),
                           .dx = dx,
                           .ddelta = c.has_delta ? ddelta.write() : Reals{},
                           .dweight = dweight,
                           .dbias = c.centred ? dbias.write() : Reals{},
                           .ddelta_bias = c.has_bias ? ddelta_bias.write() : Reals{},
                           .partial = partial.floats()},
                          c.rows, c.columns, nullptr);
      EXPECT_LT(reference::error(dx.values(), expected.dx), limit(c.x, 4e-6)) << c.name();
      if (c.has_delta) EXPECT_LT(reference::error(ddelta.values(), expected.dx), limit(c.delta, 4e-6)) << c.name();
      EXPECT_LT(reference::error(dweight.values(), expected.dweight), limit(c.weight, 6e-5)) << c.name();
      if (c.centred) EXPECT_LT(reference::error(dbias.values(), expected.dbias), limit(c.weight, 6e-6)) << c.name();
      if (c.has_bias)
        EXPECT_LT(reference::error(ddelta_bias.values(), expected.ddelta_bias), limit(c.weight, 1e-5)) << c.name();
    });
  }
}

TEST(CudaNorm, BackwardOfFrozenWeights) {
  const Case c{.rows = 5, .columns = 4100, .centred = true};
  const Given given(c);
  const Normed normed = forward_of(c, given);
  const Numbers sum = narrowed_to_floats(normed.sum);
  Numbers mean = narrowed_to_floats(normed.mean), rstd = narrowed_to_floats(normed.rstd), dx(Real::float32, 5 * 4100);
  cuda::norm_backward(
      {.sum = sum, .dy = given.dy, .weight = given.weight, .mean = mean.floats(), .rstd = rstd.floats(), .dx = dx}, 5,
      4100, nullptr);
  const Normed same{sum.values(), {}, mean.values(), rstd.values()};
  EXPECT_LT(reference::error(dx.values(), backward_of(c, given, same, false).dx), 4e-6);
}

}  // namespace
