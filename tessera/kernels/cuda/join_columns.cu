#include <tessera/kernels/cuda/join_columns.h>

#include <tessera/kernels/cuda/column_threads.h>

namespace tessera::kernels::cuda {
namespace {

// The rows of a thread form a group for the sums.
template <int width>
__global__ void join_rows(ColumnJoin a, std::int64_t rows, std::int64_t columns) {
  const std::int64_t column = own_column(width), all = a.parts * columns;
  if (column >= all) return;
  const std::int64_t which = column / columns, from = column - which * columns;
  const ConstReals part = which == 0 ? a.part[0] : which == 1 ? a.part[1] : a.part[2];  // avoids thread-local memory
  float sum[width] = {};
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float x[width];
    load(part, row * columns + from, x);
    for (int k = 0; k < width; ++k) sum[k] += x[k];
    store(a.joined, row * all + column, x);
  }
  if (a.partial != nullptr) store(Reals{a.partial, Real::float32}, blockIdx.y * all + column, sum);
}

}  // namespace

std::int64_t joined_partial_sums(int parts, std::int64_t rows, std::int64_t columns) {
  return row_groups(rows, parts * columns) * parts * columns;
}

void join_columns(const ColumnJoin& a, std::int64_t rows, std::int64_t columns, void* stream) {
  if (rows == 0 || columns == 0 || a.parts == 0) return;
  const bool fours =
      in_fours(columns, a.part[0], a.part[1], a.part[2], a.joined, seen(static_cast<const float*>(a.partial)));
  const ColumnThreads threads(rows, a.parts * columns, fours ? 4 : 1);
  launch("join_columns", fours ? join_rows<4> : join_rows<1>, threads.grid, threads.block, 0, stream, a, rows, columns);
  if (a.partial != nullptr)
    add_partial_sums(a.partial, {{a.sums, {}, {}}}, threads.grid.y, 1, a.parts * columns, stream);
}

}  // namespace tessera::kernels::cuda
