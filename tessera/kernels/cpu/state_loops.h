#pragma once
/// \file
/// Defines how the updates of optimizer_loops.h read and write an optimizer's states: as float32, or as bfloat16 with
/// rounding to nearest or stochastic rounding (bf16_rounding.h). Included by loops.h inside the anonymous namespace of
/// a table.

#include <tessera/kernels/cpu/for_vectors.h>

inline __attribute__((always_inline)) F32 load_bf16(const std::uint16_t* p, int lanes) {
  if (lanes >= F32::width) return F32::from_bf16(p);
  std::uint16_t words[F32::width] = {};
  for (int i = 0; i < lanes; ++i) words[i] = p[i];
  return F32::from_bf16(words);
}
inline __attribute__((always_inline)) void store_bf16(F32 x, std::uint16_t* p, int lanes) {
  if (lanes >= F32::width) return x.to_bf16(p);
  std::uint16_t words[F32::width];
  x.to_bf16(words);
  for (int i = 0; i < lanes; ++i) p[i] = words[i];
}

/// Up to two states of one parameter; an unused one is null and not accessed.
struct Fp32States {
  float *a, *b;
  F32 load_a(std::int64_t i, int lanes) const { return F32::load(a + i, lanes); }
  F32 load_b(std::int64_t i, int lanes) const { return F32::load(b + i, lanes); }
  void store_a(std::int64_t i, int lanes, F32 x) const { x.store(a + i, lanes); }
  void store_both(std::int64_t i, int lanes, F32 x, F32 y) const { x.store(a + i, lanes), y.store(b + i, lanes); }
};

struct NearestBf16States {
  std::uint16_t *a, *b;
  F32 load_a(std::int64_t i, int lanes) const { return load_bf16(a + i, lanes); }
  F32 load_b(std::int64_t i, int lanes) const { return load_bf16(b + i, lanes); }
  void store_a(std::int64_t i, int lanes, F32 x) const { store_bf16(x, a + i, lanes); }
  void store_both(std::int64_t i, int lanes, F32 x, F32 y) const {
    store_bf16(x, a + i, lanes), store_bf16(y, b + i, lanes);
  }
};

/// Adds at most one unit of bfloat16 minus one unit of float, and truncates; `random` has 16 bits.
inline F32 round_by(F32 x, U32 random) { return keep_nan(of_bits((bits_of(x) + random) & U32::of(0xffff0000u)), x); }

struct RandomBf16States : NearestBf16States {
  std::uint32_t key, second_key, first;  ///< `first`: low half of the index of element 0

  /// 32 pseudo-random bits from index and keys (a mixing function of Wellons, "lowbias32", keyed in the middle).
  U32 random(std::int64_t i) const {
    U32 x = U32::from(first + static_cast<std::uint32_t>(i)) ^ U32::of(key);
    x = (x ^ x.right<16>()) * U32::of(0x7feb352du);
    x = (x ^ x.right<15>()) + U32::of(second_key);
    x = x * U32::of(0x846ca68bu);
    return x ^ x.right<16>();
  }
  void store_a(std::int64_t i, int lanes, F32 x) const { store_bf16(round_by(x, random(i).right<16>()), a + i, lanes); }
  void store_both(std::int64_t i, int lanes, F32 x, F32 y) const {
    const U32 bits = random(i);
    store_bf16(round_by(x, bits.right<16>()), a + i, lanes);
    store_bf16(round_by(y, bits & U32::of(0xffffu)), b + i, lanes);
  }
};

/// Calls update(states, offset, count), with the states for `rounding`, for parts of the range of n elements. The upper
/// half of the index is constant within each part.
template <class Update>
void with_bf16_states(std::uint16_t* a, std::uint16_t* b, std::int64_t n, const Bf16Rounding& rounding,
                      const Update& update) {
  if (!rounding.stochastic) return update(NearestBf16States{a, b}, 0, n);
  constexpr std::int64_t period = std::int64_t{1} << 32;
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t first = rounding.first + done, low = first % period;
    const std::int64_t count = n - done < period - low ? n - done : period - low;
    const std::uint64_t key = mix_bits(rounding.key + static_cast<std::uint64_t>(first / period));
    RandomBf16States states{};
    states.a = a + done;
    states.b = b ? b + done : nullptr;
    states.key = static_cast<std::uint32_t>(key);
    states.second_key = static_cast<std::uint32_t>(key >> 32);
    states.first = static_cast<std::uint32_t>(low);
    update(states, done, count);
    done += count;
  }
}
