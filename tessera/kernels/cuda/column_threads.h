#pragma once
/// \file
/// Shared by the kernels whose threads own columns; only .cu files include it. A thread processes one or four adjacent
/// columns, so per-column values are read once, and the rows y, y + groups, ... of its block row y.

#include <tessera/kernels/cuda/device_code.h>
#include <tessera/kernels/cuda/partial_sums.h>

namespace tessera::kernels::cuda {

/// The first of the calling thread's columns.
__device__ inline std::int64_t own_column(int width) {
  return (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * width;
}

struct ColumnThreads {
  dim3 grid, block;

  ColumnThreads(std::int64_t rows, std::int64_t columns, int width) {
    const std::int64_t chunks = columns / width;
    const unsigned threads = whole_warps(chunks, 256);
    block = dim3(threads);
    grid =
        dim3(static_cast<unsigned>((chunks + threads - 1) / threads), static_cast<unsigned>(row_groups(rows, columns)));
  }
};

}  // namespace tessera::kernels::cuda
