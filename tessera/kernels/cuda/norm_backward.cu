#include <tessera/kernels/cuda/norm.h>

#include <tessera/kernels/cuda/partial_sums.h>
#include <tessera/kernels/cuda/row_threads.h>

namespace tessera::kernels::cuda {
namespace {

template <bool centred>
constexpr int sums_of = centred ? 3 : 1;  // dweight; dbias, ddelta_bias

// A thread's contributions to the sums of its own group of rows.
template <bool centred, int width>
struct OwnSums {
  float of[sums_of<centred>][width] = {};

  __device__ void add(const float (&dy)[width], const float (&n)[width], const float (&dx)[width]) {
    for (int k = 0; k < width; ++k) {
      of[0][k] += dy[k] * n[k];
      if constexpr (centred) {
        of[1][k] += dy[k];
        of[2][k] += dx[k];
      }
    }
  }
  __device__ void read(const float* partial, int column, int columns) {
    for (int s = 0; s < sums_of<centred>; ++s) load(seen(partial), std::int64_t{s} * columns + column, of[s]);
  }
  __device__ void write(float* partial, int column, int columns) const {
    for (int s = 0; s < sums_of<centred>; ++s)
      store(Reals{partial, Real::float32}, std::int64_t{s} * columns + column, of[s]);
  }
};

// `width` elements of dy and of the normalised row n at `place`, and their contributions to the averages.
template <int width>
__device__ void look(const NormBackward& a, std::int64_t place, int column, float mean, float rstd, float (&dy)[width],
                     float (&n)[width], float (&totals)[2]) {
  float w[width];
  load(a.sum, place, n);
  load(a.dy, place, dy);
  load(a.weight, column, w);
  for (int k = 0; k < width; ++k) {
    n[k] = (n[k] - mean) * rstd;
    totals[0] += dy[k] * w[k];
    totals[1] += dy[k] * w[k] * n[k];
  }
}

template <bool centred, int width>
__device__ void write_gradient(const NormBackward& a, std::int64_t place, int column, float rstd,
                               const float (&dy)[width], const float (&n)[width], const float (&averages)[2],
                               float (&dx)[width]) {
  float w[width], before[width] = {};
  load(a.weight, column, w);
  if (a.dsum.data != nullptr) load(a.dsum, place, before);
  for (int k = 0; k < width; ++k) {
    float g = dy[k] * w[k] - n[k] * averages[1];
    if (centred) g -= averages[0];
    dx[k] = before[k] + rstd * g;
  }
  if (a.dx.data != nullptr) store(a.dx, place, dx);
  if (a.ddelta.data != nullptr) store(a.ddelta, place, dx);
}

// Rows g, g + groups, ... form group g. A thread keeps its first `held` chunks, and their sums over the group's rows,
// in registers; for very long rows, it reads the rest again and keeps the rest's sums in memory that only this thread
// writes.
template <bool centred, int width, int held>
__global__ void __launch_bounds__(1024, 1) norm_rows_backward(NormBackward a, std::int64_t rows, int columns) {
  __shared__ WarpSums<2> shared;
  const int step = static_cast<int>(blockDim.x) * width, own = static_cast<int>(threadIdx.x) * width;
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  float* const partial = a.partial == nullptr ? nullptr : a.partial + group * sums_of<centred> * columns;
  OwnSums<centred, width> sums[held];
  if (partial != nullptr) {
    for (int c = own + held * step; c < columns; c += step) OwnSums<centred, width>{}.write(partial, c, columns);
  }
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < rows;
       first += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    const std::int64_t row = first + threadIdx.y, begin = row * columns;
    const int end = row < rows ? columns : 0;
    const float rstd = end != 0 ? a.rstd[row] : 0, mean = centred && end != 0 ? a.mean[row] : 0;
    float dy[held][width], n[held][width];
    float totals[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < held; ++j) {
      const int c = own + j * step;
      if (c < end) look(a, begin + c, c, mean, rstd, dy[j], n[j], totals);
    }
    for (int c = own + held * step; c < end; c += step) {
      float far_dy[width], far_n[width];
      look(a, begin + c, c, mean, rstd, far_dy, far_n, totals);
    }
    add_over_rows(totals, shared);
    const float averages[2] = {totals[0] / static_cast<float>(columns), totals[1] / static_cast<float>(columns)};
#pragma unroll
    for (int j = 0; j < held; ++j) {
      const int c = own + j * step;
      if (c >= end) continue;
      float dx[width];
      write_gradient<centred>(a, begin + c, c, rstd, dy[j], n[j], averages, dx);
      sums[j].add(dy[j], n[j], dx);
    }
    for (int c = own + held * step; c < end; c += step) {
      float far_dy[width], far_n[width], unused[2] = {0, 0}, dx[width];
      look(a, begin + c, c, mean, rstd, far_dy, far_n, unused);
      write_gradient<centred>(a, begin + c, c, rstd, far_dy, far_n, averages, dx);
      if (partial == nullptr) continue;
      OwnSums<centred, width> far;
      far.read(partial, c, columns);
      far.add(far_dy, far_n, dx);
      far.write(partial, c, columns);
    }
  }
  if (partial == nullptr) return;
#pragma unroll
  for (int j = 0; j < held; ++j) {
    const int c = own + j * step;
    if (c < columns) sums[j].write(partial, c, columns);
  }
}

constexpr std::int64_t most_rows_at_once = 4;

template <bool centred, int width>
void launch_backward(const NormBackward& a, std::int64_t rows, std::int64_t columns, void* stream) {
  constexpr int held = width == 4 && centred ? 1 : 2;  // as many chunks as fit into 64 registers
  const dim3 block = row_block(columns / width, held);
  const auto blocks = static_cast<unsigned>((row_groups(rows, columns) + block.y - 1) / block.y);
  launch("norm_backward", norm_rows_backward<centred, width, held>, dim3(blocks), block, 0, stream, a, rows,
         static_cast<int>(columns));
  if (a.partial == nullptr) return;
  add_partial_sums(a.partial, {{a.dweight, a.dbias, a.ddelta_bias}}, static_cast<std::int64_t>(blocks) * block.y,
                   sums_of<centred>, columns, stream);
}

}  // namespace

std::int64_t norm_partial_sums(bool has_mean, std::int64_t rows, std::int64_t columns) {
  return (row_groups(rows, columns) + most_rows_at_once - 1) * (has_mean ? sums_of<true> : sums_of<false>)*columns;
}

void norm_backward(const NormBackward& a, std::int64_t rows, std::int64_t columns, void* stream) {
  if (rows == 0 || columns == 0) return;
  const bool fours =
      in_fours(columns, a.sum, a.dy, a.dsum, a.weight, a.dx, a.ddelta, seen(static_cast<const float*>(a.partial)));
  const auto run = a.mean != nullptr ? fours ? launch_backward<true, 4> : launch_backward<true, 1>
                   : fours ? launch_backward<false, 4>
                                     : launch_backward<false, 1>;
  run(a, rows, columns, stream);
}

}  // namespace tessera::kernels::cuda
