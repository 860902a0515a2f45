// Numbers multiplied by a factor on the host's CUDA; a factor of 1 accesses no memory.
#include <tessera/kernels/cuda/scale.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

namespace {

using namespace cuda_tests;
namespace cuda = tessera::kernels::cuda;

void expect_product(Real type, std::int64_t n, int shift) {
  const float factor = -0.375F;
  Numbers x(type, reference::random(n, 1), shift);
  Doubles want = x.values();
  for (double& v : want) v *= factor;
  cuda::multiply_unless_one(x, &factor, n, nullptr);
  EXPECT_LE(reference::error(x.values(), want), limit(type, 1e-7)) << n;
}

TEST(CudaScale, MultipliesByWhatTheDeviceKnows) {
  for (const Real type : {f, b})
    for (const int shift : {0, 1})
      for (const std::int64_t n : {1, 7, 64}) expect_product(type, n, shift);
  expect_product(f, 132 * 8 * 256 + 12, 1);  // more numbers than threads
}

TEST(CudaScale, OneTouchesNothing) {
  const float one = 1;
  cuda::multiply_unless_one({nullptr, f}, &one, 1000, nullptr);  // a read there would crash the test
}

}  // namespace
