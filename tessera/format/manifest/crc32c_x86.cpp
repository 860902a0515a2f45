// CRC-32C with the instructions of x86-64 processors. Sources: crc32c_streams.h (three streams); Gopal et al., "Fast
// CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009: folding).
//
// Notation: a word w of 64 bits stands for the polynomial W(x) whose coefficient of x^(63-i) is bit i (the first bit of
// the message is the highest power). The carry-less product of w with a 32-bit constant that stands for K(x) (bit i:
// x^(31-i)) is W(x) K(x) x^33 as a word of 128 bits. Hence the exponents below: each is the distance in bits, less 33,
// plus 64 for the half that lies 64 bits earlier.

#include <immintrin.h>

#include <tessera/format/manifest/crc32c_kernels.h>
#include <tessera/format/manifest/crc32c_streams.h>

namespace tessera::format {
namespace {

std::uint64_t load_word(const std::byte* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

[[gnu::target("sse4.2")]] std::uint32_t one_stream(const std::byte* at, std::size_t size, std::uint32_t raw) {
  std::uint64_t wide = raw;
  for (; size >= 8; at += 8, size -= 8) wide = _mm_crc32_u64(wide, load_word(at));
  raw = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++at, --size) raw = _mm_crc32_u8(raw, std::to_integer<unsigned char>(*at));
  return raw;
}

// The first two of the three streams are moved over what follows them. crc32(0, w) is W(x) x^32 modulo the polynomial,
// which is why it serves to reduce the products.
template <std::size_t Bytes>
[[gnu::target("sse4.2,pclmul")]] std::uint32_t three_streams(const std::byte* at, std::uint32_t raw) {
  constexpr std::uint32_t over_two = crc32c_power(16 * Bytes - 33), over_one = crc32c_power(8 * Bytes - 33);
  std::uint64_t first = raw, second = 0, third = 0;
  for (std::size_t i = 0; i < Bytes; i += 8) {
    first = _mm_crc32_u64(first, load_word(at + i));
    second = _mm_crc32_u64(second, load_word(at + Bytes + i));
    third = _mm_crc32_u64(third, load_word(at + 2 * Bytes + i));
  }
  const __m128i moved = _mm_xor_si128(
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<std::int64_t>(first)), _mm_cvtsi64_si128(over_two), 0),
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<std::int64_t>(second)), _mm_cvtsi64_si128(over_one), 0));
  return static_cast<std::uint32_t>(third ^ _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(moved))));
}

// The words of `x` moved `Bits` further: the product of each half with its constant, xored.
template <int Bits>
[[gnu::target("avx512f,vpclmulqdq"), gnu::always_inline]] inline __m512i fold(__m512i x) {
  constexpr long long low = crc32c_power(Bits + 31), high = crc32c_power(Bits - 33);
  const __m512i constants = _mm512_set_epi64(high, low, high, low, high, low, high, low);
  return _mm512_xor_si512(_mm512_clmulepi64_epi128(x, constants, 0x00), _mm512_clmulepi64_epi128(x, constants, 0x11));
}

template <int Bits>
[[gnu::target("sse4.2,pclmul"), gnu::always_inline]] inline __m128i fold_lane(__m128i x) {
  const __m128i constants = _mm_set_epi64x(crc32c_power(Bits - 33), crc32c_power(Bits + 31));
  return _mm_xor_si128(_mm_clmulepi64_si128(x, constants, 0x00), _mm_clmulepi64_si128(x, constants, 0x11));
}

enum class Store { none, cached, streamed };  // streamed: past the caches, `to` aligned to 64 bytes

// Loads 64 bytes at `from + offset` once, for the copy (to `to + offset`) and for the checksum.
template <Store How>
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i take(std::byte* to, const std::byte* from,
                                                                   std::size_t offset = 0) {
  const __m512i x = _mm512_loadu_si512(from + offset);
  if constexpr (How == Store::cached) _mm512_storeu_si512(to + offset, x);
  if constexpr (How == Store::streamed) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + offset), x);
  return x;
}

// `size`: a multiple of 64, at least 256. Four accumulators, since a product takes longer than the next one may begin.
template <Store How>
[[gnu::target("sse4.2,pclmul,avx512f,vpclmulqdq")]] std::uint32_t fold_all(std::byte* to, const std::byte* at,
                                                                           std::size_t size, std::uint32_t raw) {
  constexpr std::size_t line = 64, block = 4 * line;
  const std::byte* const end = at + size;
  const auto next = [&] { at += block, to += How == Store::none ? 0 : block; };
  __m512i x0 = take<How>(to, at), x1 = take<How>(to, at, line), x2 = take<How>(to, at, 2 * line),
          x3 = take<How>(to, at, 3 * line);
  x0 = _mm512_xor_si512(x0, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(raw))));
  next();
  while (static_cast<std::size_t>(end - at) >= block) {
    x0 = _mm512_xor_si512(fold<2048>(x0), take<How>(to, at));
    x1 = _mm512_xor_si512(fold<2048>(x1), take<How>(to, at, line));
    x2 = _mm512_xor_si512(fold<2048>(x2), take<How>(to, at, 2 * line));
    x3 = _mm512_xor_si512(fold<2048>(x3), take<How>(to, at, 3 * line));
    next();
  }
  __m512i x = _mm512_xor_si512(_mm512_xor_si512(fold<1536>(x0), fold<1024>(x1)), _mm512_xor_si512(fold<512>(x2), x3));
  for (; at < end; at += line, to += How == Store::none ? 0 : line)
    x = _mm512_xor_si512(fold<512>(x), take<How>(to, at));
  if constexpr (How == Store::streamed) _mm_sfence();
  alignas(64) __m128i lanes[4];
  _mm512_store_si512(lanes, x);
  const __m128i lane = _mm_xor_si128(_mm_xor_si128(fold_lane<384>(lanes[0]), fold_lane<256>(lanes[1])),
                                     _mm_xor_si128(fold_lane<128>(lanes[2]), lanes[3]));
  const std::uint64_t crc = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(lane)));
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1))));
}

constexpr std::size_t least_folded = 256, line_bytes = 64;

std::uint32_t update_by_folding(std::span<const std::byte> bytes, std::uint32_t raw) {
  if (bytes.size() < least_folded) return one_stream(bytes.data(), bytes.size(), raw);
  const std::size_t folded = bytes.size() / line_bytes * line_bytes;
  raw = fold_all<Store::none>(nullptr, bytes.data(), folded, raw);
  return one_stream(bytes.data() + folded, bytes.size() - folded, raw);
}

std::uint32_t copy_by_folding(std::byte* to, std::span<const std::byte> from, std::uint32_t raw) {
  const auto copy_few = [&](std::size_t size) {
    if (size == 0) return;
    std::memcpy(to, from.data(), size);
    raw = one_stream(from.data(), size, raw);
    to += size;
    from = from.subspan(size);
  };
  constexpr std::size_t least_streamed = 64 * 1024;  // smaller copies leave their lines in the cache
  const bool streamed = from.size() >= least_streamed;
  if (streamed) copy_few((line_bytes - reinterpret_cast<std::uintptr_t>(to) % line_bytes) % line_bytes);
  if (from.size() >= least_folded) {
    const std::size_t folded = from.size() / line_bytes * line_bytes;
    raw = streamed ? fold_all<Store::streamed>(to, from.data(), folded, raw)
                   : fold_all<Store::cached>(to, from.data(), folded, raw);
    to += folded;
    from = from.subspan(folded);
  }
  copy_few(from.size());
  return raw;
}

struct Instruction {
  static std::uint32_t one(const std::byte* at, std::size_t size, std::uint32_t raw) {
    return one_stream(at, size, raw);
  }
  template <std::size_t Bytes>
  static std::uint32_t three(const std::byte* at, std::uint32_t raw) {
    return three_streams<Bytes>(at, raw);
  }
};

}  // namespace

void add_machine_kernels(std::vector<Crc32cKernels>& kernels) {
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return;
  kernels.push_back({"instruction", update_by_streams<Instruction>, copy_by_streams<Instruction>});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
    kernels.push_back({"folding", update_by_folding, copy_by_folding});
}

}  // namespace tessera::format
