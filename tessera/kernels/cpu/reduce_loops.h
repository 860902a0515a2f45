#pragma once
/// \file
/// reduce.h over vectors of 64 bytes (GCC's vector extension; the compiler splits them into what the instruction set
/// supports). Included by table_*.cpp inside an anonymous namespace, once per instruction set. There is one operation
/// per element and step, so nothing can be contracted. The rest of a range is padded and processed with the same
/// vectors.

template <class T, int Lanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Lanes * sizeof(T))));
};
template <class T>
using Line = typename VectorOf<T, 64 / sizeof(T)>::type;
using Words16 = VectorOf<std::uint16_t, 16>::type;

/// Converts between elements in memory and a line of values to compute with.
template <class T>
struct Plain {
  using Stored = T;
  using Computed = T;
  static constexpr int lanes = 64 / sizeof(T);
  static void load(const T* p, Line<T>& v) { __builtin_memcpy(&v, p, sizeof v); }
  static void pack(const Line<T>& v, Line<T>& out) { out = v; }
  using Packed = Line<T>;
};
/// Half precision: F32 (simd_*.h) provides the conversions, for vectors of its own width.
template <F32 (*From)(const void*), void (F32::*To)(void*) const>
struct HalfNumbers {
  using Stored = std::uint16_t;
  using Computed = float;
  using Packed = Words16;
  static constexpr int lanes = 16;
  static void load(const std::uint16_t* p, Line<float>& v) {
    for (int i = 0; i < lanes; i += F32::width) {
      const F32 part = From(p + i);
      __builtin_memcpy(reinterpret_cast<char*>(&v) + i * sizeof(float), &part, sizeof part);
    }
  }
  static void pack(const Line<float>& v, Words16& out) {
    for (int i = 0; i < lanes; i += F32::width) {
      F32 part;
      __builtin_memcpy(&part, reinterpret_cast<const char*>(&v) + i * sizeof(float), sizeof part);
      (part.*To)(reinterpret_cast<std::uint16_t*>(&out) + i);
    }
  }
};
using Bf16 = HalfNumbers<F32::from_bf16, &F32::to_bf16>;
using Fp16 = HalfNumbers<F32::from_fp16, &F32::to_fp16>;

/// Sums and products of integers wrap around, so they are computed unsigned.
template <class T>
struct Wrapping {
  using type = T;
};
template <>
struct Wrapping<std::int8_t> {
  using type = std::uint8_t;
};
template <>
struct Wrapping<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using type = std::uint64_t;
};

struct Sum {
  template <class V>
  static void apply(V& a, const V& x) {
    a = a + x;
  }
};
struct Product {
  template <class V>
  static void apply(V& a, const V& x) {
    a = a * x;
  }
};
/// A comparison with NaN is false: x replaces a, unless a itself is NaN.
struct Min {
  template <class V>
  static void apply(V& a, const V& x) {
    a = ((a < x) | (a != a)) ? a : x;
  }
};
struct Max {
  template <class V>
  static void apply(V& a, const V& x) {
    a = ((a > x) | (a != a)) ? a : x;
  }
};

template <class V>
inline __attribute__((always_inline)) void put(void* to, const V& v, bool stream) {
  if (stream)
    stream_store<sizeof v>(to, &v);
  else
    __builtin_memcpy(to, &v, sizeof v);
}

/// Folds N lines that start at element i.
template <class In, class Out, class Op, int N>
inline __attribute__((always_inline)) void fold_lines(const Reduce& what, std::int64_t i, typename In::Computed divisor,
                                                      unsigned long stream) {
  constexpr int lanes = In::lanes;
  Line<typename In::Computed> sum[N], x;
  int r = 0;
  if (what.start) {
    for (int k = 0; k < N; ++k) Out::load(static_cast<const typename Out::Stored*>(what.start) + i + k * lanes, sum[k]);
  } else {
    for (int k = 0; k < N; ++k)
      In::load(static_cast<const typename In::Stored*>(what.inputs[0]) + i + k * lanes, sum[k]);
    r = 1;
  }
  for (; r < what.input_count; ++r) {
    const auto* input = static_cast<const typename In::Stored*>(what.inputs[r]) + i;
    for (int k = 0; k < N; ++k) {
      In::load(input + k * lanes, x);
      Op::apply(sum[k], x);
    }
  }
  if (what.fold == Fold::mean)
    for (int k = 0; k < N; ++k) sum[k] = sum[k] / divisor;
  typename Out::Packed packed[N];
  for (int k = 0; k < N; ++k) Out::pack(sum[k], packed[k]);
  for (int o = 0; o < what.output_count; ++o)
    for (int k = 0; k < N; ++k)
      put(static_cast<typename Out::Stored*>(what.outputs[o]) + i + k * lanes, packed[k], stream >> o & 1);
}

/// Folds fewer elements than a line, through padded copies.
template <class In, class Out, class Op>
void fold_rest(const Reduce& what, std::int64_t i, std::int64_t n, typename In::Computed divisor) {
  if (what.input_count < 1)
    __builtin_unreachable();  // reduce() has already checked this; without it, g++ warns about
                              // empty `rows`
  using Stored = typename In::Stored;
  alignas(64) Stored rows[max_reduce_inputs][In::lanes];
  alignas(64) typename Out::Stored start[In::lanes] = {}, result[In::lanes];
  const void* inputs[max_reduce_inputs];
  const auto in_bytes = static_cast<unsigned long>(n) * sizeof(Stored);
  const auto out_bytes = static_cast<unsigned long>(n) * sizeof(typename Out::Stored);
  for (int r = 0; r < what.input_count; ++r) {
    __builtin_memset(rows[r], 0, sizeof rows[r]);
    __builtin_memcpy(rows[r], static_cast<const Stored*>(what.inputs[r]) + i, in_bytes);
    inputs[r] = rows[r];
  }
  if (what.start) __builtin_memcpy(start, static_cast<const typename Out::Stored*>(what.start) + i, out_bytes);
  void* const outputs[] = {result};
  Reduce padded = what;
  padded.inputs = inputs;
  padded.outputs = outputs;
  padded.output_count = 1;
  if (what.start) padded.start = start;
  fold_lines<In, Out, Op, 1>(padded, 0, divisor, 0);
  for (int o = 0; o < what.output_count; ++o)
    __builtin_memcpy(static_cast<typename Out::Stored*>(what.outputs[o]) + i, result, out_bytes);
}

template <class In, class Out, class Op>
void fold_range(const Reduce& what, std::int64_t n) {
  using Stored = typename Out::Stored;
  constexpr std::int64_t line_bytes = sizeof(typename Out::Packed);
  const auto divisor = static_cast<typename In::Computed>(what.divisor > 0 ? what.divisor : what.input_count);
  std::int64_t i = 0;
  unsigned long stream = 0;  // bit o: output o is written with non-temporal stores
  if (what.stream) {
    // Non-temporal stores need aligned addresses: the first output determines where lines begin.
    const auto misaligned = [&](int o, std::int64_t element) {
      return (reinterpret_cast<std::uintptr_t>(what.outputs[o]) +
              static_cast<std::uintptr_t>(element) * sizeof(Stored)) %
             line_bytes;
    };
    const std::int64_t gap = misaligned(0, 0) == 0 ? 0 : line_bytes - static_cast<std::int64_t>(misaligned(0, 0));
    if (gap % static_cast<std::int64_t>(sizeof(Stored)) == 0) {
      const std::int64_t head = gap / static_cast<std::int64_t>(sizeof(Stored));
      i = head < n ? head : n;
      if (i > 0) fold_rest<In, Out, Op>(what, 0, i, divisor);
      for (int o = 0; o < what.output_count && o < 64; ++o)
        if (misaligned(o, i) == 0) stream |= 1ul << o;
    }
  }
  for (; i + 4 * In::lanes <= n; i += 4 * In::lanes) fold_lines<In, Out, Op, 4>(what, i, divisor, stream);
  for (; i + In::lanes <= n; i += In::lanes) fold_lines<In, Out, Op, 1>(what, i, divisor, stream);
  if (i < n) fold_rest<In, Out, Op>(what, i, n - i, divisor);
  if (stream != 0) stream_fence();
}

template <class In, class Out>
void fold_floats(const Reduce& what, std::int64_t n) {
  switch (what.fold) {
    case Fold::sum:
    case Fold::mean:
      return fold_range<In, Out, Sum>(what, n);
    case Fold::min:
      return fold_range<In, Out, Min>(what, n);
    case Fold::max:
      return fold_range<In, Out, Max>(what, n);
    case Fold::product:
      return fold_range<In, Out, Product>(what, n);
  }
}
template <class T>
void fold_integers(const Reduce& what, std::int64_t n) {
  using Signed = Plain<T>;
  using Unsigned = Plain<typename Wrapping<T>::type>;
  switch (what.fold) {
    case Fold::sum:
    case Fold::mean:
      return fold_range<Unsigned, Unsigned, Sum>(what, n);
    case Fold::min:
      return fold_range<Signed, Signed, Min>(what, n);
    case Fold::max:
      return fold_range<Signed, Signed, Max>(what, n);
    case Fold::product:
      return fold_range<Unsigned, Unsigned, Product>(what, n);
  }
}

void reduce_loop(const Reduce& what, std::int64_t n) {
  switch (what.number) {
    case Number::fp32:
      return fold_floats<Plain<float>, Plain<float>>(what, n);
    case Number::fp64:
      return fold_floats<Plain<double>, Plain<double>>(what, n);
    case Number::bf16:
      return what.fp32_output ? fold_floats<Bf16, Plain<float>>(what, n) : fold_floats<Bf16, Bf16>(what, n);
    case Number::fp16:
      return what.fp32_output ? fold_floats<Fp16, Plain<float>>(what, n) : fold_floats<Fp16, Fp16>(what, n);
    case Number::int8:
      return fold_integers<std::int8_t>(what, n);
    case Number::uint8:
      return fold_integers<std::uint8_t>(what, n);
    case Number::int32:
      return fold_integers<std::int32_t>(what, n);
    case Number::int64:
      return fold_integers<std::int64_t>(what, n);
  }
}

void stream_copy_loop(void* to, const void* from, std::int64_t bytes) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  std::int64_t head = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) % 64);
  if (head > bytes) head = bytes;
  __builtin_memcpy(target, source, static_cast<unsigned long>(head));
  std::int64_t i = head;
  for (; i + 256 <= bytes; i += 256) {
    Line<float> v[4];
    __builtin_memcpy(v, source + i, sizeof v);
    for (int k = 0; k < 4; ++k) stream_store<64>(target + i + 64 * k, &v[k]);
  }
  __builtin_memcpy(target + i, source + i, static_cast<unsigned long>(bytes - i));
  stream_fence();
}
