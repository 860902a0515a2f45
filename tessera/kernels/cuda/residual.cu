#include <tessera/kernels/cuda/residual.h>

#include <tessera/kernels/cuda/column_threads.h>

namespace tessera::kernels::cuda {
namespace {

template <int width>
__global__ void residual_rows(Residual a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t column = own_column(width);
  if (column >= columns) return;
  float b[width] = {};
  if (a.bias.data != nullptr) load(a.bias, column, b);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float x[width], d[width];
    load(a.x, row * columns + column, x);
    load(a.delta, row * columns + column, d);
    for (int k = 0; k < width; ++k) x[k] += d[k] + b[k];
    store(a.y, row * columns + column, x);
  }
}

// The rows of a thread form a group for the bias's gradient.
template <int width>
__global__ void residual_rows_backward(ResidualBackward a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t column = own_column(width);
  if (column >= columns) return;
  float sum[width] = {};
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float d[width];
    load(a.dy, row * columns + column, d);
    for (int k = 0; k < width; ++k) sum[k] += d[k];
    if (a.ddelta.data != nullptr) store(a.ddelta, row * columns + column, d);
  }
  if (a.partial != nullptr) store(Reals{a.partial, Real::float32}, blockIdx.y * columns + column, sum);
}

}  // namespace

std::int64_t residual_partial_sums(std::int64_t rows, std::int64_t columns) {
  return row_groups(rows, columns) * columns;
}

void add_residual(const Residual& a, std::int64_t rows, std::int64_t columns, void* stream) {
  if (rows == 0 || columns == 0) return;
  const bool fours = in_fours(columns, a.x, a.delta, a.bias, a.y);
  const ColumnThreads threads(rows, columns, fours ? 4 : 1);
  launch("residual", fours ? residual_rows<4> : residual_rows<1>, threads.grid, threads.block, 0, stream, a, rows,
         columns);
}

void add_residual_backward(const ResidualBackward& a, std::int64_t rows, std::int64_t columns, void* stream) {
  if (rows == 0 || columns == 0) return;
  const bool fours = in_fours(columns, a.dy, a.ddelta, seen(static_cast<const float*>(a.partial)));
  const ColumnThreads threads(rows, columns, fours ? 4 : 1);
  launch("residual_backward", fours ? residual_rows_backward<4> : residual_rows_backward<1>, threads.grid,
         threads.block, 0, stream, a, rows, columns);
  if (a.partial != nullptr) add_partial_sums(a.partial, {{a.dbias, {}, {}}}, threads.grid.y, 1, columns, stream);
}

}  // namespace tessera::kernels::cuda
