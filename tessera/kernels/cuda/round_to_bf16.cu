#include <tessera/kernels/cuda/round_to_bf16.h>

#include <tessera/kernels/cuda/bf16_states.h>

namespace tessera::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr std::int64_t portion = 4 * threads;
constexpr std::int64_t most_thread_blocks = 132 * 8;  // enough to fill an H100/H200; the loop covers the rest

template <bool second>
__device__ unsigned short rounded_state(float x, const StateRounding& rounding, std::int64_t i) {
  return second ? rounded_second(x, rounding, i) : rounded_first(x, rounding, i);
}

template <bool second>
__global__ void round_states(const float* from, unsigned short* to, std::int64_t n, StateRounding rounding,
                             bool in_fours) {
  for (std::int64_t begin = blockIdx.x * portion; begin < n; begin += gridDim.x * portion) {
    const std::int64_t i = begin + 4 * threadIdx.x;
    if (in_fours && i + 4 <= n) {
      const float4 x = *reinterpret_cast<const float4*>(from + i);
      const unsigned first = rounded_state<second>(x.x, rounding, i), one = rounded_state<second>(x.y, rounding, i + 1),
                     two = rounded_state<second>(x.z, rounding, i + 2),
                     three = rounded_state<second>(x.w, rounding, i + 3);
      put_four(to + i, make_uint2(first | one << 16, two | three << 16));
    } else {
      for (std::int64_t k = i; k < i + 4 && k < n; ++k) to[k] = rounded_state<second>(from[k], rounding, k);
    }
  }
}

}  // namespace

void round_to_bf16(const float* from, std::uint16_t* to, std::int64_t n, const Bf16Rounding& rounding, int which,
                   void* stream) {
  for_each_rounding(rounding, n, [&](const StateRounding& part, std::int64_t offset, std::int64_t count) {
    if (count == 0) return;
    const std::int64_t portions = (count + portion - 1) / portion;
    const bool fours =
        in_fours(4, Reals{const_cast<float*>(from + offset), Real::float32}, Reals{to + offset, Real::bfloat16});
    launch("round_to_bf16", which == 0 ? round_states<false> : round_states<true>,
           dim3(static_cast<unsigned>(portions < most_thread_blocks ? portions : most_thread_blocks)), dim3(threads), 0,
           stream, from + offset, to + offset, count, part, fours);
  });
}

}  // namespace tessera::kernels::cuda
