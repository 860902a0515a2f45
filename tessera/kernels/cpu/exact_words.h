#pragma once
/// \file
/// Arithmetic of an exact sum (optim/exact_sum.h) on its words, for host and devices: plain integers, one thread. A sum
/// has 68 digits of 32 bits, the first of weight 2^-1074, each in a 64-bit word that may hold more until it is carried;
/// followed by the counts of NaN, +infinity and -infinity.

#include <bit>
#include <cstdint>

namespace tessera::kernels {

/// Digits and words of a sum.
inline constexpr int exact_digits = 68, exact_words = exact_digits + 3;

/// Carries the digits. Afterwards each is in [0, 2^32), except the last one, which holds the sign.
constexpr void carry_exact(std::int64_t* words) {
  for (int i = 0; i + 1 < exact_digits; ++i) {
    words[i + 1] += words[i] >> 32;
    words[i] &= 0xffffffff;
  }
}

/// The sum, rounded once: to nearest, ties to even; infinite if too large. NaN if a NaN or both infinities were added,
/// otherwise the infinity that was added, if any. Carries `words` and replaces them with the words of the absolute
/// value.
constexpr double exact_value(std::int64_t* words) {
  constexpr std::uint64_t infinity = 0x7ff0000000000000, nan = 0x7ff8000000000000, sign = 0x8000000000000000;
  const bool positive_infinity = words[exact_digits + 1] > 0, negative_infinity = words[exact_digits + 2] > 0;
  if (words[exact_digits] > 0 || (positive_infinity && negative_infinity)) return std::bit_cast<double>(nan);
  if (positive_infinity) return std::bit_cast<double>(infinity);
  if (negative_infinity) return std::bit_cast<double>(infinity | sign);

  carry_exact(words);
  const bool negative = words[exact_digits - 1] < 0;
  if (negative) {
    for (int i = 0; i < exact_digits; ++i) words[i] = -words[i];
    carry_exact(words);
  }
  int top = exact_digits;
  while (top > 0 && words[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The top digit may have more than 32 bits; it is treated as one long digit.
  int length = 32 * (top - 1);
  for (auto rest = static_cast<std::uint64_t>(words[top - 1]); rest != 0; rest >>= 1) ++length;
  const auto bit = [&](int i) {
    const int digit = i / 32 < top ? i / 32 : top - 1;
    return static_cast<std::uint64_t>(words[digit] >> (i - 32 * digit) & 1);
  };
  const int kept = length < 53 ? length : 53, dropped = length - kept;
  std::uint64_t mantissa = 0;
  for (int i = 0; i < kept; ++i) mantissa = mantissa << 1 | bit(length - 1 - i);
  if (dropped > 0 && bit(dropped - 1) != 0) {  // at least half a unit: rounds up, but on a tie only to even
    bool above_half = false;
    for (int i = 0; i + 1 < dropped && !above_half; ++i) above_half = bit(i) != 0;
    if (above_half || mantissa % 2 == 1) ++mantissa;
  }
  // mantissa * 2^(dropped - 1074): the mantissa's 53rd bit adds 1 to the exponent; without it the number is subnormal
  // and nothing was dropped.
  std::uint64_t bits = (static_cast<std::uint64_t>(dropped) << 52) + mantissa;
  if (dropped >= 2046 || bits > infinity) bits = infinity;
  return std::bit_cast<double>(negative ? bits | sign : bits);
}

}  // namespace tessera::kernels
