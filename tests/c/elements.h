#pragma once
/// \file
/// Writes and reads numbers of all dtypes, and computes reductions by definition, without the library's arithmetic.

#include <tessera/c/tessera_c.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tessera::testing {

using Value = std::complex<double>;
using Bytes = std::vector<std::uint8_t>;

inline bool is_complex(tessera_dtype d) { return d == TESSERA_COMPLEX64 || d == TESSERA_COMPLEX128; }
inline bool is_real(tessera_dtype d) { return d >= TESSERA_FLOAT16 && d <= TESSERA_FLOAT64; }
inline bool supports(tessera_dtype d, tessera_op op) {
  if (op == TESSERA_MIN || op == TESSERA_MAX) return !is_complex(d);
  if (op == TESSERA_AVERAGE) return is_real(d) || is_complex(d);
  if (op >= TESSERA_BAND) return !is_real(d) && !is_complex(d);
  return true;
}

// Finds the nearest half by trying all 65536; of two equally near, the even one.
inline double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}
inline std::uint16_t half_of(double value) {
  if (value == 0) return std::signbit(value) ? 0x8000 : 0;
  std::uint16_t best = 0;
  double distance = INFINITY;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double other = half_value(static_cast<std::uint16_t>(bits));
    if (!std::isfinite(other)) continue;
    const double d = std::abs(other - value);
    if (d < distance || (d == distance && (bits & 1) == 0)) {
      distance = d;
      best = static_cast<std::uint16_t>(bits);
    }
  }
  return best;
}
inline double bf16_value(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}
inline std::uint16_t bf16_of(double value) {  // exact values, and ties to even
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T>
void put(Bytes& bytes, T value) {
  const auto at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

inline void append(Bytes& bytes, tessera_dtype dtype, Value value) {
  const double x = value.real();
  const auto whole = static_cast<std::int64_t>(x);
  switch (dtype) {
    case TESSERA_UINT8:
      return put(bytes, static_cast<std::uint8_t>(whole));
    case TESSERA_INT8:
      return put(bytes, static_cast<std::int8_t>(whole));
    case TESSERA_INT16:
      return put(bytes, static_cast<std::int16_t>(whole));
    case TESSERA_INT32:
      return put(bytes, static_cast<std::int32_t>(whole));
    case TESSERA_INT64:
      return put(bytes, whole);
    case TESSERA_FLOAT16: {
      static std::vector<std::pair<double, std::uint16_t>> known;
      for (const auto& [number, bits] : known) {
        if (number == x && std::signbit(number) == std::signbit(x)) return put(bytes, bits);
      }
      known.emplace_back(x, half_of(x));
      return put(bytes, known.back().second);
    }
    case TESSERA_BFLOAT16:
      return put(bytes, bf16_of(x));
    case TESSERA_FLOAT32:
      return put(bytes, static_cast<float>(x));
    case TESSERA_FLOAT64:
      return put(bytes, x);
    case TESSERA_BOOL:
      return put(bytes, static_cast<std::uint8_t>(x != 0));
    case TESSERA_COMPLEX64:
      put(bytes, static_cast<float>(x));
      return put(bytes, static_cast<float>(value.imag()));
    default:
      put(bytes, x);
      return put(bytes, value.imag());
  }
}

inline Bytes bytes_of(tessera_dtype dtype, const std::vector<Value>& values) {
  Bytes bytes;
  for (const Value& value : values) append(bytes, dtype, value);
  return bytes;
}

/// Rank `rank`'s element i: small, so that every dtype represents sums of four of them exactly.
inline Value element(tessera_dtype dtype, int rank, std::int64_t i) {
  const auto n = static_cast<double>((i * 7 + rank * 5 + i / 13) % 6);  // 0..5
  if (dtype == TESSERA_BOOL) return static_cast<double>((i + rank * i / 3) % 2);
  if (dtype == TESSERA_UINT8) return n;
  if (is_complex(dtype)) return {n - 2, static_cast<double>((i + rank) % 4) - 1};
  return is_real(dtype) ? (n - 2) / 2 : n - 2;
}

inline Value combined(tessera_dtype dtype, tessera_op op, const std::vector<Value>& values) {
  Value result = values.front();
  for (std::size_t r = 1; r < values.size(); ++r) {
    const Value other = values[r];
    const auto a = static_cast<std::int64_t>(result.real()), b = static_cast<std::int64_t>(other.real());
    switch (op) {
      case TESSERA_SUM:
      case TESSERA_AVERAGE:
        result = dtype == TESSERA_BOOL ? Value(static_cast<double>(a != 0 || b != 0)) : result + other;
        break;
      case TESSERA_PRODUCT:
        result = result * other;
        break;
      case TESSERA_MIN:
        result = std::min(result.real(), other.real());
        break;
      case TESSERA_MAX:
        result = std::max(result.real(), other.real());
        break;
      case TESSERA_BAND:
        result = static_cast<double>(a & b);
        break;
      case TESSERA_BOR:
        result = static_cast<double>(a | b);
        break;
      default:
        result = static_cast<double>(a ^ b);
    }
  }
  return op == TESSERA_AVERAGE ? result / static_cast<double>(values.size()) : result;
}

}  // namespace tessera::testing
