#pragma once
/// \file
/// Rounds optimizers' states to bfloat16 as defined by kernels/cpu/bf16_rounding.h and state_loops.h, bit for bit. Only
/// .cu files include it.

#include <tessera/kernels/cpu/bf16_rounding.h>
#include <tessera/kernels/cuda/device_code.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// Bf16Rounding for elements whose index has a constant upper half.
struct StateRounding {
  std::uint32_t key, second_key, first;  ///< `first`: low half of the index of element 0
  std::uint32_t stochastic;              ///< 1 or 0
};

/// Calls part(rounding, offset, count) for parts of the n elements. The index's upper half is constant within each
/// part.
template <class Part>
void for_each_rounding(const Bf16Rounding& whole, std::int64_t n, const Part& part) {
  if (!whole.stochastic) return part(StateRounding{}, 0, n);
  constexpr std::int64_t period = std::int64_t{1} << 32;
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t first = whole.first + done, low = first % period;
    const std::int64_t count = n - done < period - low ? n - done : period - low;
    const std::uint64_t key = mix_bits(whole.key + static_cast<std::uint64_t>(first / period));
    part(StateRounding{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32),
                       static_cast<std::uint32_t>(low), 1},
         done, count);
    done += count;
  }
}

/// The 32 random bits of element i: a first or only state uses the upper half, a second state the lower half.
__device__ inline unsigned random_bits(const StateRounding& r, std::int64_t i) {
  unsigned x = (r.first + static_cast<unsigned>(i)) ^ r.key;
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) + r.second_key;
  x *= 0x846ca68bU;
  return x ^ x >> 16;
}

/// `added`: 16 random bits, or to_nearest(x); a NaN becomes 0x7fc0.
__device__ inline unsigned short state_of(float x, unsigned added) {
  const unsigned bits = __float_as_uint(x);
  return static_cast<unsigned short>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : (bits + added) >> 16);
}
/// The addend that rounds x to nearest, ties to even.
__device__ inline unsigned to_nearest(float x) { return 0x7fffU + (__float_as_uint(x) >> 16 & 1U); }

__device__ inline unsigned short rounded_first(float x, const StateRounding& r, std::int64_t i) {
  return state_of(x, r.stochastic != 0 ? random_bits(r, i) >> 16 : to_nearest(x));
}
__device__ inline unsigned short rounded_second(float x, const StateRounding& r, std::int64_t i) {
  return state_of(x, r.stochastic != 0 ? random_bits(r, i) & 0xffffU : to_nearest(x));
}

}  // namespace tessera::kernels::cuda
