#include <tessera/kernels/cuda/embed.h>

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

// A block processes one row at a time.
template <int width>
__global__ void embed_rows(EmbeddedSum a, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t id = a.ids[row];
    if (id < 0 || id >= a.vocabulary) __trap();
    for (std::int64_t column = static_cast<std::int64_t>(threadIdx.x) * width; column < columns;
         column += static_cast<std::int64_t>(blockDim.x) * width) {
      float token[width], place[width];
      load(a.tokens, id * columns + column, token);
      load(a.places, row % a.period * columns + column, place);
      for (int k = 0; k < width; ++k) token[k] += place[k];
      store(a.y, row * columns + column, token);
    }
  }
}

}  // namespace

void embedded_sum(const EmbeddedSum& a, std::int64_t rows, std::int64_t columns, void* stream) {
  if (rows == 0 || columns == 0) return;
  constexpr std::int64_t most_blocks = 132 * 32;  // enough to fill an H100/H200; the loop covers the rest
  const bool fours = in_fours(columns, a.tokens, a.places, a.y);
  launch("embedded_sum", fours ? embed_rows<4> : embed_rows<1>,
         dim3(static_cast<unsigned>(rows < most_blocks ? rows : most_blocks)),
         dim3(whole_warps(columns / (fours ? 4 : 1), 256)), 0, stream, a, rows, columns);
}

}  // namespace tessera::kernels::cuda
