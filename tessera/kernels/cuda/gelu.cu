#include <tessera/kernels/cuda/gelu.h>

#include <tessera/kernels/cuda/column_threads.h>

namespace tessera::kernels::cuda {
namespace {

constexpr float twice_root = 1.5957691216057308F, cubic = 0.044715F;  // 2 sqrt(2/pi)

// gelu(u) = u share(u)
template <bool fast>
__device__ float share(float u) {
  return logistic<fast>(twice_root * (u + cubic * u * u * u));
}

template <int width, bool fast>
__global__ void gelu_rows(ConstReals x, ConstReals bias, Reals y, std::int64_t rows, std::int64_t columns) {
  const std::int64_t column = own_column(width);
  if (column >= columns) return;
  float b[width] = {};
  if (bias.data != nullptr) load(bias, column, b);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float u[width];
    load(x, row * columns + column, u);
    for (int k = 0; k < width; ++k) {
      u[k] += b[k];
      u[k] *= share<fast>(u[k]);
    }
    store(y, row * columns + column, u);
  }
}

// The rows of a thread form a group for the bias's gradient.
template <int width, bool fast>
__global__ void gelu_rows_backward(GeluBackward a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t column = own_column(width);
  if (column >= columns) return;
  float b[width] = {}, sum[width] = {};
  if (a.bias.data != nullptr) load(a.bias, column, b);
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float u[width], d[width];
    load(a.x, row * columns + column, u);
    load(a.dy, row * columns + column, d);
    for (int k = 0; k < width; ++k) {
      u[k] += b[k];
      const float s = share<fast>(u[k]);
      d[k] *= s + u[k] * s * (1 - s) * (twice_root * (1 + 3 * cubic * u[k] * u[k]));
      sum[k] += d[k];
    }
    store(a.dx, row * columns + column, d);
  }
  if (a.partial != nullptr) store(Reals{a.partial, Real::float32}, blockIdx.y * columns + column, sum);
}

}  // namespace

std::int64_t gelu_partial_sums(std::int64_t rows, std::int64_t columns) { return row_groups(rows, columns) * columns; }

void gelu_tanh(ConstReals x, ConstReals bias, Reals y, std::int64_t rows, std::int64_t columns, void* stream) {
  if (rows == 0 || columns == 0) return;
  const bool fours = in_fours(columns, x, bias, y), fast = x.type == Real::bfloat16;
  const ColumnThreads threads(rows, columns, fours ? 4 : 1);
  const auto kernel = fours  ? fast ? gelu_rows<4, true> : gelu_rows<4, false>
                       : fast ? gelu_rows<1, true>
                             : gelu_rows<1, false>;
  launch("gelu", kernel, threads.grid, threads.block, 0, stream, x, bias, y, rows, columns);
}

void gelu_tanh_backward(const GeluBackward& a, std::int64_t rows, std::int64_t columns, void* stream) {
  if (rows == 0 || columns == 0) return;
  const bool fours = in_fours(columns, a.x, a.bias, a.dy, a.dx, seen(static_cast<const float*>(a.partial)));
  const bool fast = a.x.type == Real::bfloat16;
  const ColumnThreads threads(rows, columns, fours ? 4 : 1);
  const auto kernel = fours  ? fast ? gelu_rows_backward<4, true> : gelu_rows_backward<4, false>
                       : fast ? gelu_rows_backward<1, true>
                             : gelu_rows_backward<1, false>;
  launch("gelu_backward", kernel, threads.grid, threads.block, 0, stream, a, rows, columns);
  if (a.partial != nullptr) add_partial_sums(a.partial, {{a.dbias, {}, {}}}, threads.grid.y, 1, columns, stream);
}

}  // namespace tessera::kernels::cuda
