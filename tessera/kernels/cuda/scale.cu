#include <tessera/kernels/cuda/scale.h>

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

template <int width>
__global__ void multiply_all(Reals x, const float* factor, std::int64_t n) {
  const float by = *factor;
  if (by == 1) return;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * width;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width; i < n; i += step) {
    float numbers[width];
    load(seen(x), i, numbers);
    for (int k = 0; k < width; ++k) numbers[k] *= by;
    store(x, i, numbers);
  }
}

}  // namespace

void multiply_unless_one(Reals x, const float* factor, std::int64_t n, void* stream) {
  if (n == 0) return;
  constexpr std::int64_t threads = 256, most_blocks = 132 * 8;  // enough to fill an H100/H200; the loop covers the rest
  const bool fours = in_fours(n, x);
  const std::int64_t each = threads * (fours ? 4 : 1), blocks = (n + each - 1) / each;
  launch("multiply_unless_one", fours ? multiply_all<4> : multiply_all<1>,
         dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks)), dim3(threads), 0, stream, x, factor,
         n);
}

}  // namespace tessera::kernels::cuda
