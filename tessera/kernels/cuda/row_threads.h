#pragma once
/// \file
/// Shared by the kernels over rows; only .cu files include it. The dimensions of a block are (threads of a row, rows at
/// once); a row has whole warps, and a block at most 32 warps.

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {

/// Shared memory of add_over_rows().
template <int count>
struct WarpSums {
  float of_warp[count][32];
};

/// Adds each x[i] over the threads of a row; all of these threads get the sum. Every thread of the block must call it.
template <int count>
__device__ inline void add_over_rows(float (&x)[count], WarpSums<count>& shared) {
  for (unsigned half = warp_size / 2; half > 0; half /= 2) {
    for (int i = 0; i < count; ++i) x[i] += __shfl_xor_sync(0xffffffffU, x[i], half);
  }
  const unsigned warps = blockDim.x / warp_size, first = threadIdx.y * warps;
  if (warps == 1) return;
  __syncthreads();  // all threads have finished reading an earlier call's sums
  if (threadIdx.x % warp_size == 0) {
    for (int i = 0; i < count; ++i) shared.of_warp[i][first + threadIdx.x / warp_size] = x[i];
  }
  __syncthreads();
  for (int i = 0; i < count; ++i) {
    x[i] = 0;
    for (unsigned w = 0; w < warps; ++w) x[i] += shared.of_warp[i][first + w];
  }
}

/// The block dimensions for rows of `chunks` pieces, with `each` pieces per thread.
inline dim3 row_block(std::int64_t chunks, int each) {
  const unsigned threads = whole_warps((chunks + each - 1) / each, 1024);
  return {threads, threads < 128 ? 128 / threads : 1};
}

}  // namespace tessera::kernels::cuda
