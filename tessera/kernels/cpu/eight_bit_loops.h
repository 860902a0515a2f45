#pragma once
/// \file
/// eight_bit.h. Included by loops.h inside the anonymous namespace of a table, after optimizer_loops.h.
///
/// Codes are found without a search. In decade d, the numbers are the midpoints of 2^d equal parts (twice as many
/// without sign), so the part that contains x is the integer part of a linear function of x; numbered from 2^d on in
/// decade d (2^(d+1) without sign), the parts of all decades are numbered consecutively. The lines of adjacent decades
/// meet where the decades meet, and each is a fifth as steep as the line below it, so the number of x's part is the
/// minimum over the lines. One correction is needed: the midpoint between the last number of a decade and the first
/// number of the next is 0.2 of a part above the decade's end.

constexpr int dynamic_decades = 7;

/// A map from magnitudes to parts.
struct DynamicParts {
  float slopes[dynamic_decades], offsets[dynamic_decades];
  float least, most;      ///< magnitudes below `least` are nearest to 0, magnitudes above `most` to 1
  int first, last, zero;  ///< the parts of the smallest number, of 1, and of 0
};

template <bool WithSign>
constexpr DynamicParts make_dynamic_parts() {
  DynamicParts parts{};
  double scale = 1e6, count = WithSign ? 1 : 2;
  for (int d = 0; d < dynamic_decades; ++d, scale /= 10, count *= 2) {
    parts.slopes[d] = static_cast<float>(scale * count / 0.9);
    parts.offsets[d] = static_cast<float>(count * 8 / 9);
  }
  parts.first = WithSign ? 1 : 2;
  parts.last = WithSign ? 128 : 256;
  parts.zero = parts.first - 1;
  parts.least = static_cast<float>(0.5e-6 * (0.1 + 0.45 / parts.first));
  parts.most = static_cast<float>(1 - 0.45 / parts.last);
  return parts;
}

// The compiler's vector types, which support comparison and selection.
constexpr int code_lanes = F32::width < 4 ? 4 : F32::width;
using Floats = float __attribute__((vector_size(code_lanes * 4)));
using Ints = int __attribute__((vector_size(code_lanes * 4)));
using Bytes = std::uint8_t __attribute__((vector_size(code_lanes)));

/// Codes of the numbers nearest to x * factor, for a whole block.
template <bool WithSign>
inline __attribute__((always_inline)) void dynamic_codes(const float* x, float factor, std::uint8_t* codes) {
  constexpr DynamicParts parts = make_dynamic_parts<WithSign>();
  alignas(64) float values[eight_bit_block], lines[eight_bit_block];
  for (std::int64_t i = 0; i < eight_bit_block; i += F32::width) {
    const F32 value = F32::load(x + i) * F32::of(factor);
    const F32 size = WithSign ? max(value, F32::of(0) - value) : value;
    F32 line = fma(size, F32::of(parts.slopes[0]), F32::of(parts.offsets[0]));
    for (int d = 1; d < dynamic_decades; ++d)
      line = min(line, fma(size, F32::of(parts.slopes[d]), F32::of(parts.offsets[d])));
    value.store(values + i);
    line.store(lines + i);
  }
  for (std::int64_t i = 0; i < eight_bit_block; i += code_lanes) {
    Floats value, line;
    __builtin_memcpy(&value, values + i, sizeof value);
    __builtin_memcpy(&line, lines + i, sizeof line);
    Ints bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    const Ints sign = bits >> 31;  // -1 for a negative number, otherwise 0
    bits = WithSign ? bits & 0x7fffffff : bits;
    Floats size;
    __builtin_memcpy(&size, &bits, sizeof size);
    Ints part = __builtin_convertvector(line, Ints);
    const Floats into = line - __builtin_convertvector(part, Floats);
    part = (((part & (part - 1)) == 0) & (into < 0.2f)) ? part - 1 : part;
    part = part < parts.first ? parts.first + Ints{} : part;
    part = size > parts.most ? parts.last + Ints{} : part;
    part = size < parts.least ? parts.zero + Ints{} : part;
    if constexpr (WithSign) {
      part += part == parts.last ? sign : Ints{};  // -1 is not in the map
      part = 127 + ((part ^ sign) - sign);
    } else {
      part -= 1;
    }
    const Bytes bytes = __builtin_convertvector(part, Bytes);
    __builtin_memcpy(codes + i, &bytes, sizeof bytes);
  }
}

/// x: a block, padded with zeros after its first n.
template <bool WithSign>
inline __attribute__((always_inline)) void encode_block(const float* x, std::int64_t n, std::uint8_t* codes,
                                                        float* scale) {
  F32 most = F32::of(0), least = F32::of(0), odd = F32::of(0);
  for (std::int64_t i = 0; i < eight_bit_block; i += F32::width) {
    const F32 value = F32::load(x + i);
    most = max(most, value);
    if constexpr (WithSign) least = max(least, F32::of(0) - value);
    odd = fma(value, F32::of(0), odd);  // 0, or NaN
  }
  const float above = largest(most), below = WithSign ? largest(least) : 0;
  const float size = above >= below ? above : below, check = sum(odd);
  const bool is_zero = !(size >= 0x1p-100f);
  *scale = check != 0 ? __builtin_nanf("") : is_zero ? 0 : above >= below ? above : -below;
  if (check != 0 || is_zero) {
    __builtin_memset(codes, WithSign ? 127 : check != 0 ? 1 : 0, static_cast<std::size_t>(n));
    return;
  }
  if (n == eight_bit_block) return dynamic_codes<WithSign>(x, 1 / *scale, codes);
  std::uint8_t whole[eight_bit_block];
  dynamic_codes<WithSign>(x, 1 / *scale, whole);
  __builtin_memcpy(codes, whole, static_cast<std::size_t>(n));
}

inline __attribute__((always_inline)) void decode_block(const std::uint8_t* codes, float scale, const float* numbers,
                                                        std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = numbers[codes[i]] * scale;
}

/// Calls update(first element, count) for each block.
template <class Update>
inline __attribute__((always_inline)) void for_blocks(std::int64_t n, const Update& update) {
  for (std::int64_t begin = 0; begin < n; begin += eight_bit_block)
    update(begin, n - begin < eight_bit_block ? n - begin : eight_bit_block);
}

void encode_eight_bits_loop(const float* x, std::int64_t n, EightBitMap map, EightBits to) {
  for_blocks(n, [&](std::int64_t begin, std::int64_t count) {
    float block[eight_bit_block] = {};
    __builtin_memcpy(block, x + begin, static_cast<std::size_t>(count) * sizeof(float));
    float* const scale = to.scales + begin / eight_bit_block;
    map == EightBitMap::with_sign ? encode_block<true>(block, count, to.codes + begin, scale)
                                  : encode_block<false>(block, count, to.codes + begin, scale);
  });
}

void decode_eight_bits_loop(EightBits from, std::int64_t n, EightBitMap map, float* y) {
  const float* const numbers = eight_bit_numbers(map);
  for_blocks(n, [&](std::int64_t begin, std::int64_t count) {
    decode_block(from.codes + begin, from.scales[begin / eight_bit_block], numbers, count, y + begin);
  });
}

template <bool DecayInGradient>
void adamw_eight_bits_range(const AdamwVectors& c, float* p, const float* g, EightBits m, EightBits v, std::int64_t n) {
  const float* const signed_numbers = eight_bit_numbers(EightBitMap::with_sign);
  const float* const numbers = eight_bit_numbers(EightBitMap::without_sign);
  for_blocks(n, [&](std::int64_t begin, std::int64_t count) __attribute__((always_inline)) {
    const std::int64_t block = begin / eight_bit_block;
    alignas(64) float mean[eight_bit_block] = {}, square[eight_bit_block] = {};
    decode_block(m.codes + begin, m.scales[block], signed_numbers, count, mean);
    decode_block(v.codes + begin, v.scales[block], numbers, count, square);
    adamw_range<DecayInGradient>(c, p + begin, g + begin, Fp32States{mean, square}, count);
    encode_block<true>(mean, count, m.codes + begin, m.scales + block);
    encode_block<false>(square, count, v.codes + begin, v.scales + block);
  });
}

void adamw_eight_bits_loop(float* p, const float* g, EightBits m, EightBits v, std::int64_t n, const AdamwArgs& a) {
  const AdamwVectors c = adamw_vectors(a);
  return a.decay_in_gradient ? adamw_eight_bits_range<true>(c, p, g, m, v, n)
                             : adamw_eight_bits_range<false>(c, p, g, m, v, n);
}

void lion_eight_bits_loop(float* p, const float* g, EightBits m, std::int64_t n, const LionArgs& a) {
  const LionVectors c = lion_vectors(a);
  const float* const numbers = eight_bit_numbers(EightBitMap::with_sign);
  for_blocks(n, [&](std::int64_t begin, std::int64_t count) __attribute__((always_inline)) {
    const std::int64_t block = begin / eight_bit_block;
    alignas(64) float mean[eight_bit_block] = {};
    decode_block(m.codes + begin, m.scales[block], numbers, count, mean);
    lion_range(c, p + begin, g + begin, Fp32States{mean, nullptr}, count);
    encode_block<true>(mean, count, m.codes + begin, m.scales + block);
  });
}
