#pragma once
/// \file
/// dropout.h. Included by loops.h inside the anonymous namespace of a table; plain loops over integers, which compilers
/// vectorize. The formula is repeated here, because code for one instruction set must not be shared with the others
/// (loops.h); a test compares the two.

inline __attribute__((always_inline)) std::uint32_t random_bits(std::uint64_t key, std::uint32_t column) {
  std::uint32_t x = column ^ static_cast<std::uint32_t>(key);
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  x = (x ^ (x >> 16)) + static_cast<std::uint32_t>(key >> 32);
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

void dropout_loop(const float* x, float* y, std::int64_t n, std::uint64_t key, std::uint32_t first, std::uint32_t limit,
                  float scale) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = random_bits(key, first + static_cast<std::uint32_t>(i));
    y[i] = bits < limit ? 0.0f : x[i] * scale;
  }
}

void uniform_loop(float* y, std::int64_t n, std::uint64_t key, std::uint32_t first) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = random_bits(key, first + static_cast<std::uint32_t>(i));
    y[i] = static_cast<float>(static_cast<std::int32_t>(bits >> 8)) * 0x1p-24f;
  }
}
