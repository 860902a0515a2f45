#pragma once
/// \file
/// Defines how the states of an optimizer are rounded to bfloat16.

#include <cstdint>

namespace tessera::kernels {

/// Rounds to nearest, ties to even, or stochastically: up with the probability given by the truncated part. The random
/// bits of an element depend only on `key` (seed, step, parameter) and on the element's index in its parameter, not on
/// where a range is cut. A NaN becomes 0x7fc0, an infinity stays infinite.
struct Bf16Rounding {
  bool stochastic = false;
  std::uint64_t key = 0;
  std::int64_t first = 0;  ///< index of the range's first element in the whole parameter
};

/// Mixes 64 bits well (the finaliser of SplitMix64, Steele et al. 2014). Always inlined, because tables for different
/// instruction sets use it and must not share a copy.
[[gnu::always_inline]] constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace tessera::kernels
