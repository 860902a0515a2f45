#include <tessera/kernels/cuda/dropout.h>

#include <tessera/kernels/cpu/dropout.h>
#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

constexpr int warp = 32, warps = 8;
constexpr int at_once = 4;                             // elements per thread that are loaded at the same time
constexpr std::int64_t most_thread_blocks = 132 * 16;  // enough to fill an H100/H200; the loop covers the rest

// One warp per line: the key's divisions are expensive for a single element, and lines have hundreds of elements.
template <class EachColumn>
__device__ void for_lines(const RandomLines& l, EachColumn each_column) {
  const std::int64_t heads = l.heads > 0 ? l.heads : 1, lines = l.rows * heads * l.tokens;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * warps;
  for (std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp; line < lines;
       line += stride) {
    const std::int64_t token = line % l.tokens, head = line / l.tokens % heads, row = line / l.tokens / heads;
    const std::int64_t position = l.positions != nullptr ? l.positions[token] : l.token + token;
    std::uint64_t key = mixed_key(l.key, static_cast<std::uint64_t>(l.row + row));
    key = mixed_key(key, static_cast<std::uint64_t>(position));
    if (l.heads > 0) key = mixed_key(key, static_cast<std::uint64_t>(l.head + head));
    each_column(line * l.columns, key);
  }
}

__device__ std::uint32_t number(const RandomLines& l, std::uint64_t key, std::int64_t column) {
  const std::int64_t position = l.column_positions != nullptr ? l.column_positions[column] : l.column + column;
  return random_number(key, static_cast<std::uint32_t>(position));
}

__global__ void drop_lines(ConstReals x, Reals y, RandomLines l, std::uint32_t limit, float scale) {
  for_lines(l, [&](std::int64_t begin, std::uint64_t key) {
    for (std::int64_t first = threadIdx.x % warp; first < l.columns; first += warp * at_once) {
      float values[at_once] = {};
      for (int k = 0; k < at_once; ++k) {
        const std::int64_t column = first + k * warp;
        if (column < l.columns) values[k] = load(x, begin + column);
      }
      for (int k = 0; k < at_once; ++k) {
        const std::int64_t column = first + k * warp;
        if (column < l.columns)
          store(y, begin + column, number(l, key, column) < limit ? 0.0F : __fmul_rn(values[k], scale));
      }
    }
  });
}

__global__ void uniform_lines(float* y, RandomLines l) {
  for_lines(l, [&](std::int64_t begin, std::uint64_t key) {
    for (std::int64_t column = threadIdx.x % warp; column < l.columns; column += warp)
      y[begin + column] = __fmul_rn(static_cast<float>(static_cast<int>(number(l, key, column) >> 8)), 0x1p-24F);
  });
}

template <class... Parameters, class... Arguments>
void launch_lines(const char* name, const RandomLines& l, void* stream, void (*kernel)(Parameters...),
                  Arguments... arguments) {
  const std::int64_t lines = l.rows * (l.heads > 0 ? l.heads : 1) * l.tokens, blocks = (lines + warps - 1) / warps;
  if (lines * l.columns == 0) return;
  launch(name, kernel, dim3(static_cast<unsigned>(blocks < most_thread_blocks ? blocks : most_thread_blocks)),
         dim3(warp * warps), 0, stream, arguments...);
}

}  // namespace

void dropout(ConstReals x, Reals y, RandomLines lines, std::uint32_t limit, float scale, void* stream) {
  launch_lines("dropout", lines, stream, drop_lines, x, y, lines, limit, scale);
}

void uniform(float* y, RandomLines lines, void* stream) {
  launch_lines("uniform", lines, stream, uniform_lines, y, lines);
}

}  // namespace tessera::kernels::cuda
