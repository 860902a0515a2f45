#include <tessera/wire/arithmetic.h>

#include <tessera/base/half.h>
#include <tessera/wire/failure.h>

#include <complex>
#include <cstring>
#include <type_traits>

namespace tessera::wire {
namespace {

struct DtypeRow {
  const char* name;
  std::size_t width;
};
constexpr DtypeRow dtypes[dtype_count] = {{"uint8", 1},   {"int8", 1},    {"int16", 2},     {"int32", 4},
                                          {"int64", 8},   {"float16", 2}, {"bfloat16", 2},  {"float32", 4},
                                          {"float64", 8}, {"bool", 1},    {"complex64", 8}, {"complex128", 16}};
constexpr const char* reductions[reduction_count] = {"sum", "product", "min", "max", "average", "band", "bor", "bxor"};

const DtypeRow& row_of(Dtype dtype) { return dtypes[static_cast<int>(dtype)]; }

// T: an element, read and written bytewise, because callers' arrays may be unaligned.
template <class T, class Combine>
void fold_each(const void* const* inputs, int input_count, void* const* outputs, int output_count, std::size_t bytes,
               Combine combine) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
    T value;
    std::memcpy(static_cast<void*>(&value), static_cast<const char*>(inputs[0]) + at, sizeof value);
    for (int r = 1; r < input_count; ++r) {
      T other;
      std::memcpy(static_cast<void*>(&other), static_cast<const char*>(inputs[r]) + at, sizeof other);
      value = combine(value, other);
    }
    for (int o = 0; o < output_count; ++o) {
      std::memcpy(static_cast<char*>(outputs[o]) + at, static_cast<const void*>(&value), sizeof value);
    }
  }
}

template <class T, class Combine>
void loop(const void* const* inputs, int input_count, void* const* outputs, int output_count, std::size_t bytes) {
  fold_each<T>(inputs, input_count, outputs, output_count, bytes, Combine{});
}

struct Sum16 {
  std::int16_t operator()(std::int16_t a, std::int16_t b) const {
    return static_cast<std::int16_t>(static_cast<std::uint16_t>(a) + static_cast<std::uint16_t>(b));
  }
};
struct Product16 {
  std::int16_t operator()(std::int16_t a, std::int16_t b) const { return static_cast<std::int16_t>(a * b); }
};
struct Min16 {
  std::int16_t operator()(std::int16_t a, std::int16_t b) const { return b < a ? b : a; }
};
struct Max16 {
  std::int16_t operator()(std::int16_t a, std::int16_t b) const { return a < b ? b : a; }
};
struct And {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return a & b; }
};
struct Or {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return a | b; }
};
struct Xor {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return a ^ b; }
};
// For bools: any nonzero byte is true.
struct BothTrue {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return a != 0 && b != 0; }
};
struct AnyTrue {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return a != 0 || b != 0; }
};
struct OneTrue {
  std::uint8_t operator()(std::uint8_t a, std::uint8_t b) const { return (a != 0) != (b != 0); }
};
// The textbook formula, without the special handling of infinities in std::complex's operator*.
template <class T>
struct ComplexProduct {
  std::complex<T> operator()(std::complex<T> a, std::complex<T> b) const {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }
};

Arithmetic::Loop loop_of(Dtype dtype, Reduction reduction) {
  const bool truth = dtype == Dtype::boolean;
  switch (reduction) {
    case Reduction::band:
      return truth ? loop<std::uint8_t, BothTrue> : loop<std::uint8_t, And>;
    case Reduction::bor:
      return truth ? loop<std::uint8_t, AnyTrue> : loop<std::uint8_t, Or>;
    case Reduction::bxor:
      return truth ? loop<std::uint8_t, OneTrue> : loop<std::uint8_t, Xor>;
    case Reduction::sum:
      return truth ? loop<std::uint8_t, AnyTrue> : dtype == Dtype::int16 ? loop<std::int16_t, Sum16> : nullptr;
    case Reduction::product:
      return truth                        ? loop<std::uint8_t, BothTrue>
             : dtype == Dtype::int16      ? loop<std::int16_t, Product16>
             : dtype == Dtype::complex64  ? loop<std::complex<float>, ComplexProduct<float>>
             : dtype == Dtype::complex128 ? loop<std::complex<double>, ComplexProduct<double>>
                                          : nullptr;
    case Reduction::min:
      return truth ? loop<std::uint8_t, BothTrue> : dtype == Dtype::int16 ? loop<std::int16_t, Min16> : nullptr;
    case Reduction::max:
      return truth ? loop<std::uint8_t, AnyTrue> : dtype == Dtype::int16 ? loop<std::int16_t, Max16> : nullptr;
    case Reduction::average:
      return nullptr;
  }
  return nullptr;
}

kernels::Number number_of(Dtype dtype) {
  using kernels::Number;
  switch (dtype) {
    case Dtype::int8:
      return Number::int8;
    case Dtype::int32:
      return Number::int32;
    case Dtype::int64:
      return Number::int64;
    case Dtype::float16:
      return Number::fp16;
    case Dtype::bfloat16:
      return Number::bf16;
    case Dtype::float32:
    case Dtype::complex64:
      return Number::fp32;
    case Dtype::float64:
    case Dtype::complex128:
      return Number::fp64;
    default:
      return Number::uint8;
  }
}

kernels::Fold fold_of(Reduction reduction) {
  using kernels::Fold;
  switch (reduction) {
    case Reduction::product:
      return Fold::product;
    case Reduction::min:
      return Fold::min;
    case Reduction::max:
      return Fold::max;
    case Reduction::average:
      return Fold::mean;
    default:
      return Fold::sum;
  }
}

template <class T>
void scale_numbers(void* data, std::int64_t count, double factor) {
  auto* numbers = static_cast<char*>(data);
  for (std::int64_t i = 0; i < count; ++i, numbers += sizeof(T)) {
    T value;
    std::memcpy(&value, numbers, sizeof value);
    value = static_cast<T>(static_cast<double>(value) * factor);
    std::memcpy(numbers, &value, sizeof value);
  }
}

template <float (*From)(std::uint16_t), std::uint16_t (*To)(float)>
void scale_short(void* data, std::int64_t count, double factor) {
  auto* numbers = static_cast<char*>(data);
  for (std::int64_t i = 0; i < count; ++i, numbers += 2) {
    std::uint16_t bits;
    std::memcpy(&bits, numbers, 2);
    bits = To(static_cast<float>(static_cast<double>(From(bits)) * factor));
    std::memcpy(numbers, &bits, 2);
  }
}

}  // namespace

std::size_t width_of(Dtype dtype) { return row_of(dtype).width; }
const char* name_of(Dtype dtype) { return row_of(dtype).name; }
bool is_inexact(Dtype dtype) {
  return (dtype >= Dtype::float16 && dtype <= Dtype::float64) || dtype == Dtype::complex64 ||
         dtype == Dtype::complex128;
}
const char* name_of(Reduction reduction) { return reductions[static_cast<int>(reduction)]; }

Arithmetic arithmetic_of(Dtype dtype, Reduction reduction) {
  const bool complex = dtype == Dtype::complex64 || dtype == Dtype::complex128;
  const bool ordered = reduction == Reduction::min || reduction == Reduction::max;
  const bool bitwise = reduction >= Reduction::band;
  if ((complex && ordered) || (is_inexact(dtype) && bitwise) ||
      (reduction == Reduction::average && !is_inexact(dtype))) {
    throw Failure(Code::invalid, concat(name_of(reduction), " is not for ", name_of(dtype), "."));
  }
  Arithmetic how;
  how.loop = loop_of(dtype, reduction);
  if (how.loop == nullptr) {
    how.number = number_of(dtype);
    how.fold = fold_of(reduction);
  }
  return how;
}

void combine(const Arithmetic& how, const void* const* inputs, int input_count, void* output, std::size_t bytes) {
  void* const outputs[] = {output};
  if (how.loop != nullptr) return how.loop(inputs, input_count, outputs, 1, bytes);
  kernels::Reduce what;
  what.number = how.number;
  what.fold = how.fold;
  what.inputs = inputs;
  what.input_count = input_count;
  what.outputs = outputs;
  kernels::reduce(what, static_cast<std::int64_t>(bytes) / kernels::size_of(how.number));
}

void scale(Dtype dtype, void* data, std::int64_t count, double factor) {
  switch (dtype) {
    case Dtype::float32:
      return scale_numbers<float>(data, count, factor);
    case Dtype::float64:
      return scale_numbers<double>(data, count, factor);
    case Dtype::complex64:
      return scale_numbers<float>(data, 2 * count, factor);
    case Dtype::complex128:
      return scale_numbers<double>(data, 2 * count, factor);
    case Dtype::float16:
      return scale_short<from_f16, to_f16>(data, count, factor);
    case Dtype::bfloat16:
      return scale_short<from_bf16, to_bf16>(data, count, factor);
    default:
      throw Failure(Code::invalid, concat(name_of(dtype), " cannot be scaled."));
  }
}

}  // namespace tessera::wire
