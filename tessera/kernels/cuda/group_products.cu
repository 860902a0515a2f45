// A block computes a tile of the result: 128 lines and columns, 8 x 8 per thread, so that a value read from shared
// memory is used in eight products. The next parts of both matrices are loaded at the same time.
// registers: 128
#include <tessera/kernels/cuda/device_code.h>
#include <tessera/kernels/cuda/group_products.h>

namespace tessera::kernels::cuda {
namespace {

constexpr int tile = 128, depth = 8, side = 16, threads = side * side, each = tile / side,
              read = tile * depth / threads;
constexpr int padded = tile + 4;  // stride in shared memory: a warp's writes have fewer bank conflicts

/// A block's operand: lines [first, lines) of a matrix, each with `length` elements, over which the sums run.
struct Part {
  const float* data;
  int stride;  ///< distance between lines if their elements are adjacent; otherwise between the elements of a line
  int first, lines, length;
};

/// Reads the calling thread's share of a part, eight elements of each line at a time; zeros outside.
template <bool neighbours>
class Reader {
 public:
  __device__ explicit Reader(const Part& p)
      : next_(p.data + (neighbours ? std::int64_t{p.first + line()} * p.stride + number()
                                   : std::int64_t{number()} * p.stride + p.first + line())),
        stride_(p.stride),
        lines_(p.lines - p.first - line()),
        numbers_(p.length - number()) {}
  __device__ void fetch(float (&to)[read]) {
    for (int j = 0; j < read; ++j) {
      const bool inside = neighbours ? apart * j < lines_ && 0 < numbers_ : 0 < lines_ && apart * j < numbers_;
      to[j] = inside ? next_[apart * j * stride_] : 0;
    }
    next_ += neighbours ? depth : depth * stride_;
    numbers_ -= depth;
  }
  __device__ static void keep(const float (&from)[read], float (&shared)[depth][padded]) {
    for (int j = 0; j < read; ++j)
      shared[number() + (neighbours ? 0 : apart * j)][line() + (neighbours ? apart * j : 0)] = from[j];
  }

 private:
  static constexpr int side_by_side = neighbours ? depth : tile, apart = threads / side_by_side;
  __device__ static int line() {
    return static_cast<int>(neighbours ? threadIdx.x / side_by_side : threadIdx.x % side_by_side);
  }
  __device__ static int number() {
    return static_cast<int>(neighbours ? threadIdx.x % side_by_side : threadIdx.x / side_by_side);
  }
  const float* next_;
  int stride_, lines_, numbers_;  // the last two are the remaining counts from the thread's own position
};

/// A thread's lines are four adjacent lines in each half of the tile.
__device__ int own(int index, int k) { return (k / 4) * (tile / 2) + index * 4 + k % 4; }
__device__ void take(const float (&shared)[padded], int index, float (&to)[each]) {
  for (int k = 0; k < each; k += 4) {
    const float4 four = *reinterpret_cast<const float4*>(&shared[own(index, k)]);
    to[k] = four.x, to[k + 1] = four.y, to[k + 2] = four.z, to[k + 3] = four.w;
  }
}

/// y [a.lines, b.lines], with row stride b.lines: products of lines.
template <bool a_neighbours, bool b_neighbours>
__device__ void multiply(const Part& a, const Part& b, float* y) {
  alignas(16) __shared__ float lines[depth][padded];
  alignas(16) __shared__ float columns[depth][padded];
  const int line = static_cast<int>(threadIdx.x) / side, column = static_cast<int>(threadIdx.x) % side;
  float sums[each][each] = {}, next_lines[read], next_columns[read];
  Reader<a_neighbours> from_a(a);
  Reader<b_neighbours> from_b(b);
  from_a.fetch(next_lines);
  from_b.fetch(next_columns);
  for (int at = 0; at < a.length; at += depth) {
    from_a.keep(next_lines, lines);
    from_b.keep(next_columns, columns);
    __syncthreads();
    from_a.fetch(next_lines);
    from_b.fetch(next_columns);
    for (int k = 0; k < depth; ++k) {
      float left[each], right[each];
      take(lines[k], line, left);
      take(columns[k], column, right);
      for (int i = 0; i < each; ++i)
        for (int j = 0; j < each; ++j) sums[i][j] += left[i] * right[j];
    }
    __syncthreads();  // before the next numbers are stored there
  }
  for (int i = 0; i < each; ++i) {
    const int row = a.first + own(line, i);
    if (row >= a.lines) return;
    float* const to = y + static_cast<std::int64_t>(row) * b.lines;
    for (int j = 0; j < each; ++j)
      if (const int at = b.first + own(column, j); at < b.lines) to[at] = sums[i][j];
  }
}

/// Grid: (tiles of rows, tiles of columns). Every group has whole tiles; blocks after the last group's tiles have
/// nothing to do.
template <bool transposed>
__global__ void __launch_bounds__(threads, 2) rows_of_groups(GroupRows a, int inner, int columns, int groups) {
  int tiles = static_cast<int>(blockIdx.x), group = 0, begin = 0, end = 0;
  for (;; ++group, begin = end) {
    if (group == groups) return;
    end = a.ends[group];
    const int of_group = (end - begin + tile - 1) / tile;
    if (tiles < of_group) break;
    tiles -= of_group;
  }
  const Part x{a.x + std::int64_t{begin} * inner, inner, tiles * tile, end - begin, inner};
  const Part w{a.weights + std::int64_t{group} * inner * columns, transposed ? inner : columns,
               static_cast<int>(blockIdx.y) * tile, columns, inner};
  multiply<true, transposed>(x, w, a.y + std::int64_t{begin} * columns);
}

/// Grid: (tiles of columns, tiles of lines, groups).
__global__ void __launch_bounds__(threads, 2) sums_of_groups(GroupSums a, int lines, int columns) {
  const int group = static_cast<int>(blockIdx.z), begin = group > 0 ? a.ends[group - 1] : 0;
  const int rows = a.ends[group] - begin;
  const Part left{a.left + std::int64_t{begin} * lines, lines, static_cast<int>(blockIdx.y) * tile, lines, rows};
  const Part right{a.right + std::int64_t{begin} * columns, columns, static_cast<int>(blockIdx.x) * tile, columns,
                   rows};
  multiply<false, false>(left, right, a.sums + std::int64_t{group} * lines * columns);
}

unsigned tiles_of(std::int64_t count) { return static_cast<unsigned>((count + tile - 1) / tile); }

}  // namespace

void group_rows(const GroupRows& a, std::int64_t rows, std::int64_t inner, std::int64_t columns, std::int64_t groups,
                void* stream) {
  if (rows == 0 || columns == 0 || groups == 0) return;
  const dim3 grid(static_cast<unsigned>(rows / tile + groups), tiles_of(columns));  // the last tile of each group may
                                                                                    // be partial
  launch("group_rows", a.transposed ? rows_of_groups<true> : rows_of_groups<false>, grid, dim3(threads), 0, stream, a,
         static_cast<int>(inner), static_cast<int>(columns), static_cast<int>(groups));
}

void group_sums(const GroupSums& a, std::int64_t /*rows*/, std::int64_t lines, std::int64_t columns,
                std::int64_t groups, void* stream) {
  if (lines == 0 || columns == 0 || groups == 0) return;
  launch("group_sums", sums_of_groups, dim3(tiles_of(columns), tiles_of(lines), static_cast<unsigned>(groups)),
         dim3(threads), 0, stream, a, static_cast<int>(lines), static_cast<int>(columns));
}

}  // namespace tessera::kernels::cuda
