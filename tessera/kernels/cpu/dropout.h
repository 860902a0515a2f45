#pragma once
/// \file
/// Random numbers determined by position: the numbers of a line (for example, a token of a row) are a function of its
/// key and the column. Parts of a line can therefore be drawn anywhere, in any order.

#include <cstdint>

namespace tessera::kernels {

// The functions are constexpr because nvcc also compiles them for devices (--expt-relaxed-constexpr).

/// A 32-bit finaliser (Wellons 2018, hash prospector, lowbias32).
constexpr std::uint32_t mixed_bits(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/// The number of column c of the line with `key`: mix(mix(c ^ low key) + high key), where mix is mixed_bits(). Every
/// key defines a permutation of the 2^32 columns; keys should differ in all bits (mixed_key()).
constexpr std::uint32_t random_number(std::uint64_t key, std::uint32_t column) {
  return mixed_bits(mixed_bits(column ^ static_cast<std::uint32_t>(key)) + static_cast<std::uint32_t>(key >> 32));
}

/// Returns a key for each pair (splitmix64, Steele, Lea & Flood 2014).
constexpr std::uint64_t mixed_key(std::uint64_t key, std::uint64_t number) {
  key += (number + 1) * 0x9E3779B97F4A7C15u;
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9u;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EBu;
  return key ^ (key >> 31);
}

/// y[i] = 0 where the number of column first + i is below `limit`, else x[i] * scale. y may be x.
void dropout(const float* x, float* y, std::int64_t n, std::uint64_t key, std::uint32_t first, std::uint32_t limit,
             float scale);

/// y[i] = the upper 24 bits of the number of column first + i, in [0, 1).
void uniform(float* y, std::int64_t n, std::uint64_t key, std::uint32_t first);

}  // namespace tessera::kernels
