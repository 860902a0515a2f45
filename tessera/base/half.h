#pragma once
/// \file
/// Conversion of IEEE binary16 and bfloat16 bit patterns to and from float. Branch-free where it matters, so that loops
/// over these functions vectorise.

#include <bit>
#include <cstdint>

namespace tessera {

inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// Exact. The exponent is shifted by a multiplication with 2^112, which handles subnormals correctly without a branch.
inline float from_f16(std::uint16_t bits) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7FFF) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const std::uint32_t special = (bits & 0x7C00) == 0x7C00 ? 0x7F800000u | magnitude : scaled;  // inf and nan
  return std::bit_cast<float>(special | sign);
}

/// Rounds to nearest, ties to even; a nan remains a nan.
inline std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/// Rounds to nearest, ties to even; above 65504 (after rounding) gives infinity; a nan remains a nan.
inline std::uint16_t to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<std::uint16_t>(sign | 0x7E00);
  if (magnitude >= 0x477FF000) return static_cast<std::uint16_t>(sign | 0x7C00);  // 65520 and more
  if (magnitude < 0x38800000) {                                                   // below 2^-14: subnormal or zero
    // Adding 0.5 aligns the last kept bit with the float's last bit, so the addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFF + ((magnitude >> 13) & 1)) >> 13));
}

}  // namespace tessera
