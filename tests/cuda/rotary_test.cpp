// Rotary embedding on the host's CUDA, compared with double precision.
#include <tessera/kernels/cuda/rotary.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

namespace {

using namespace cuda_tests;
namespace cuda = tessera::kernels::cuda;

struct Case {
  std::int64_t tokens, heads, size, period, stride = 0;  ///< stride 0: contiguous
  Real x = f, y = f;
  int shift = 0;
  float direction = 1;
};
const Case cases[] = {{1, 1, 2, 1},
                      {7, 3, 6, 7},
                      {12, 4, 64, 6},
                      {6, 2, 8, 6, 48},
                      {6, 2, 8, 3, 17, f, f, 0, -1},
                      {5, 2, 16, 5, 0, b, b},
                      {5, 2, 16, 5, 0, b, f},
                      {5, 2, 16, 5, 64, b, b, 1, -1},
                      {5, 2, 16, 5, 0, f, f, 2},
                      {3, 40, 128, 3, 0, b, b}};

TEST(CudaRotary, FollowsTheFormula) {
  for (const Case& c : cases) {
    const std::int64_t stride = c.stride != 0 ? c.stride : c.heads * c.size, half = c.size / 2;
    // The gap after the last token's last head need not exist in memory.
    const Numbers x(c.x, reference::random((c.tokens - 1) * stride + c.heads * c.size, 1), c.shift);
    Floats cosines, sines;
    for (const float angle : reference::random(c.period * half, 2, 3))
      cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
    Numbers cos(f, cosines), sin(f, sines);
    const Doubles from = x.values(), turn_cos = cos.values(), turn_sin = sin.values();
    Doubles expected(static_cast<std::size_t>(c.tokens * c.heads * c.size));
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        for (std::int64_t i = 0; i < half; ++i) {
          const auto angle = static_cast<std::size_t>(t % c.period * half + i);
          const double low = from[static_cast<std::size_t>(t * stride + h * c.size + i)],
                       high = from[static_cast<std::size_t>(t * stride + h * c.size + i + half)];
          double* const y = expected.data() + (t * c.heads + h) * c.size + i;
          y[0] = low * turn_cos[angle] - high * turn_sin[angle] * c.direction;
          y[half] = high * turn_cos[angle] + low * turn_sin[angle] * c.direction;
        }
      }
    }
    in_each_order([&] {
      Numbers y(c.y, c.tokens * c.heads * c.size, c.shift);
      cuda::rotary({x, cos.floats(), sin.floats(), y, stride, c.period, c.direction}, c.tokens, c.heads, c.size,
                   nullptr);
      EXPECT_LT(reference::error(y.values(), expected), limit(c.y, 1e-6)) << c.tokens << " tokens of " << c.size;
    });
  }
}

TEST(CudaRotary, InPlace) {
  Numbers x(f, reference::random(2 * 3 * 8, 1)), y(f, 2 * 3 * 8), cos(f, reference::random(8, 2)),
      sin(f, reference::random(8, 3));
  cuda::rotary({x, cos.floats(), sin.floats(), y, 24, 2, 1}, 2, 3, 8, nullptr);
  cuda::rotary({x, cos.floats(), sin.floats(), x, 24, 2, 1}, 2, 3, 8, nullptr);
  EXPECT_EQ(x.values(), y.values());
}

}  // namespace
