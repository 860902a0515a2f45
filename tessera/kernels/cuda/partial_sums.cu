#include <tessera/kernels/cuda/partial_sums.h>

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

constexpr unsigned columns_at_once = 32, most_parts = 16;

// A block processes 32 columns of one sum; its warps (at most 16) process the groups in turn.
__global__ void partial_sums(const float* __restrict__ partial, ColumnSums to, std::int64_t groups, int sums,
                             std::int64_t columns) {
  const unsigned parts = blockDim.y;
  __shared__ float part[most_parts][columns_at_once];
  const Reals out = blockIdx.y == 0 ? to.sum[0] : blockIdx.y == 1 ? to.sum[1] : to.sum[2];
  if (out.data == nullptr) return;  // uniform over the whole block
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * columns_at_once + threadIdx.x;
  float sum = 0;
  if (column < columns) {
    for (std::int64_t g = threadIdx.y; g < groups; g += parts)
      sum += partial[(g * sums + blockIdx.y) * columns + column];
  }
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  sum = 0;
  for (unsigned i = 0; i < parts; ++i) sum += part[i][threadIdx.x];
  store(out, column, sum);
}

}  // namespace

void add_partial_sums(const float* partial, const ColumnSums& to, std::int64_t groups, int sums, std::int64_t columns,
                      void* stream) {
  const auto blocks = static_cast<unsigned>((columns + columns_at_once - 1) / columns_at_once);
  const unsigned parts = groups < most_parts ? static_cast<unsigned>(groups) : most_parts;
  launch("partial_sums", partial_sums, dim3(blocks, static_cast<unsigned>(sums)), dim3(columns_at_once, parts), 0,
         stream, partial, to, groups, sums, columns);
}

}  // namespace tessera::kernels::cuda
