#include <tessera/kernels/cuda/rotary.h>

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

// A block processes one token at a time; a thread rotates `width` pairs of a head.
template <int width>
__global__ void rotary_tokens(Rotary a, std::int64_t tokens, unsigned heads, unsigned half) {
  const unsigned pieces = half / width;  // per head
  for (std::int64_t t = blockIdx.x; t < tokens; t += gridDim.x) {
    const std::int64_t angle = t % a.period * half;
    for (unsigned i = threadIdx.x; i < heads * pieces; i += blockDim.x) {
      const unsigned head = i / pieces, pair = i % pieces * width;
      const std::int64_t from = t * a.x_stride + std::int64_t{head} * 2 * half + pair;
      const std::int64_t to = (t * heads + head) * 2 * half + pair;
      float low[width], high[width], c[width], s[width];
      load(a.x, from, low);
      load(a.x, from + half, high);
      load(seen(a.cos), angle + pair, c);
      load(seen(a.sin), angle + pair, s);
      for (int k = 0; k < width; ++k) {
        const float x = low[k], turn = a.direction * s[k];
        low[k] = x * c[k] - high[k] * turn;
        high[k] = high[k] * c[k] + x * turn;
      }
      store(a.y, to, low);
      store(a.y, to + half, high);
    }
  }
}

}  // namespace

void rotary(const Rotary& a, std::int64_t tokens, std::int64_t heads, std::int64_t size, void* stream) {
  if (tokens == 0 || heads == 0 || size == 0) return;
  constexpr std::int64_t most_blocks = 132 * 32;  // enough to fill an H100/H200; the loop covers the rest
  const std::int64_t half = size / 2;
  const bool fours = a.x_stride % 4 == 0 && in_fours(half, a.x, seen(a.cos), seen(a.sin), a.y);
  launch("rotary", fours ? rotary_tokens<4> : rotary_tokens<1>,
         dim3(static_cast<unsigned>(tokens < most_blocks ? tokens : most_blocks)),
         dim3(whole_warps(heads * half / (fours ? 4 : 1), 256)), 0, stream, a, tokens, static_cast<unsigned>(heads),
         static_cast<unsigned>(half));
}

}  // namespace tessera::kernels::cuda
