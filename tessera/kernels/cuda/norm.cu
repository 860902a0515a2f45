#include <tessera/kernels/cuda/norm.h>

#include <tessera/kernels/cuda/row_threads.h>

namespace tessera::kernels::cuda {
namespace {

// Computes `width` elements of the sum at `place` = row * columns + column, and stores them if requested.
template <int width>
__device__ void make_sum(const NormForward& a, std::int64_t place, std::int64_t column, float (&v)[width]) {
  load(a.x, place, v);
  if (a.delta.data == nullptr) return;
  float d[width];
  load(a.delta, place, d);
  if (a.delta_bias.data != nullptr) {
    float b[width];
    load(a.delta_bias, column, b);
    for (int k = 0; k < width; ++k) d[k] += b[k];
  }
  for (int k = 0; k < width; ++k) v[k] = rounded(v[k] + d[k], a.sum.type);
  store(a.sum, place, v);
}

template <int width>
__device__ void write_normed(const NormForward& a, std::int64_t place, std::int64_t column, const float (&v)[width],
                             float mean, float rstd) {
  float w[width], y[width], b[width] = {};
  load(a.weight, column, w);
  if (a.bias.data != nullptr) load(a.bias, column, b);
  for (int k = 0; k < width; ++k) {
    float n = (v[k] - mean) * rstd;
    if (a.mean == nullptr) n = rounded(n, a.sum.type);
    y[k] = n * w[k] + b[k];
  }
  store(a.y, place, y);
}

// A thread keeps its first `held` chunks of the row in registers; for very long rows, the rest is read again.
template <bool centred, int width, int held>
__global__ void __launch_bounds__(1024) norm_rows(NormForward a, std::int64_t rows, std::int64_t columns) {
  __shared__ WarpSums<1> shared;
  const ConstReals sum = a.sum.data != nullptr ? seen(a.sum) : a.x;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * width, own = threadIdx.x * width;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < rows;
       first += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    const std::int64_t row = first + threadIdx.y, begin = row * columns;
    const std::int64_t end = row < rows ? columns : 0;  // zero columns if the row does not exist
    float v[held][width];
    float total[1] = {0}, squares[1] = {0};
#pragma unroll
    for (int j = 0; j < held; ++j) {
      const std::int64_t c = own + j * step;
      if (c >= end) continue;
      make_sum(a, begin + c, c, v[j]);
      for (int k = 0; k < width; ++k) total[0] += v[j][k];
    }
    for (std::int64_t c = own + held * step; c < end; c += step) {
      float far[width];
      make_sum(a, begin + c, c, far);
      for (int k = 0; k < width; ++k) total[0] += far[k];
    }
    float mean = 0;
    if (centred) {
      add_over_rows(total, shared);
      mean = total[0] / static_cast<float>(columns);
    }
#pragma unroll
    for (int j = 0; j < held; ++j) {
      if (own + j * step >= end) continue;
      for (int k = 0; k < width; ++k) squares[0] += (v[j][k] - mean) * (v[j][k] - mean);
    }
    for (std::int64_t c = own + held * step; c < end; c += step) {
      float far[width];
      load(sum, begin + c, far);
      for (int k = 0; k < width; ++k) squares[0] += (far[k] - mean) * (far[k] - mean);
    }
    add_over_rows(squares, shared);
    const float variance = squares[0] / static_cast<float>(columns);
    const float rstd = __fdiv_rn(1, __fsqrt_rn(variance + static_cast<float>(a.eps)));
#pragma unroll
    for (int j = 0; j < held; ++j) {
      const std::int64_t c = own + j * step;
      if (c < end) write_normed(a, begin + c, c, v[j], mean, rstd);
    }
    for (std::int64_t c = own + held * step; c < end; c += step) {
      float far[width];
      load(sum, begin + c, far);
      write_normed(a, begin + c, c, far, mean, rstd);
    }
    if (threadIdx.x == 0 && end != 0) {
      if (centred) a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  }
}

template <bool centred, int width>
void launch_norm(const NormForward& a, std::int64_t rows, std::int64_t columns, void* stream) {
  constexpr int held = width == 4 ? 4 : 8;
  constexpr std::int64_t most_blocks = 1 << 30;
  const dim3 block = row_block(columns / width, held);
  const std::int64_t blocks = (rows + block.y - 1) / block.y;
  launch("norm", norm_rows<centred, width, held>,
         dim3(static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks)), block, 0, stream, a, rows, columns);
}

}  // namespace

void norm(const NormForward& given, std::int64_t rows, std::int64_t columns, void* stream) {
  if (rows == 0 || columns == 0) return;
  NormForward a = given;
  if (a.sum.data == nullptr) a.sum.type = a.x.type;
  const bool fours = in_fours(columns, a.x, a.delta, a.delta_bias, a.weight, a.bias, a.sum, a.y);
  const auto run = a.mean != nullptr ? fours ? launch_norm<true, 4> : launch_norm<true, 1>
                   : fours ? launch_norm<false, 4>
                                     : launch_norm<false, 1>;
  run(a, rows, columns, stream);
}

}  // namespace tessera::kernels::cuda
