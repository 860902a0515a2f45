#include <tessera/kernels/cuda/swiglu.h>

#include <tessera/kernels/cuda/device_code.h>

namespace tessera::kernels::cuda {
namespace {

constexpr unsigned threads = 256;

template <int width, bool fast>
__global__ void swiglu_elements(ConstReals gate, ConstReals up, Reals y, std::int64_t n) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads * width;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * width; i < n; i += stride) {
    float g[width], u[width];
    load(gate, i, g);
    load(up, i, u);
    for (int k = 0; k < width; ++k) u[k] *= g[k] * logistic<fast>(g[k]);
    store(y, i, u);
  }
}

template <int width, bool fast>
__global__ void swiglu_elements_backward(SwigluBackward a, std::int64_t n) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * threads * width;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * width; i < n; i += stride) {
    float g[width], u[width], d[width];
    load(a.gate, i, g);
    load(a.up, i, u);
    load(a.dy, i, d);
    for (int k = 0; k < width; ++k) {
      const float s = logistic<fast>(g[k]), dup = d[k] * (g[k] * s);
      g[k] = d[k] * u[k] * (s * (1 + g[k] * (1 - s)));
      u[k] = dup;
    }
    store(a.dgate, i, g);
    store(a.dup, i, u);
  }
}

dim3 grid_of(std::int64_t n, int width) {
  constexpr std::int64_t most_blocks = 132 * 16;  // enough to fill an H100/H200; the loop covers the rest
  const std::int64_t blocks = (n / width + threads - 1) / threads;
  return static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
}

}  // namespace

void swiglu(ConstReals gate, ConstReals up, Reals y, std::int64_t n, void* stream) {
  if (n == 0) return;
  const bool fours = in_fours(n, gate, up, y), fast = gate.type == Real::bfloat16;
  const auto kernel = fours  ? fast ? swiglu_elements<4, true> : swiglu_elements<4, false>
                       : fast ? swiglu_elements<1, true>
                             : swiglu_elements<1, false>;
  launch("swiglu", kernel, grid_of(n, fours ? 4 : 1), dim3(threads), 0, stream, gate, up, y, n);
}

void swiglu_backward(const SwigluBackward& a, std::int64_t n, void* stream) {
  if (n == 0) return;
  const bool fours = in_fours(n, a.gate, a.up, a.dy, a.dgate, a.dup), fast = a.gate.type == Real::bfloat16;
  const auto kernel = fours  ? fast ? swiglu_elements_backward<4, true> : swiglu_elements_backward<4, false>
                       : fast ? swiglu_elements_backward<1, true>
                             : swiglu_elements_backward<1, false>;
  launch("swiglu_backward", kernel, grid_of(n, fours ? 4 : 1), dim3(threads), 0, stream, a, n);
}

}  // namespace tessera::kernels::cuda
