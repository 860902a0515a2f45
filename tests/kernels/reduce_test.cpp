// n-ary reductions against the plainest loop over single elements: equal bits on every instruction set, for every cut,
// alignment and number of outputs.
#include "isa.h"

#include <rapidcheck.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace tessera::kernels;

namespace {

using Bytes = std::vector<unsigned char>;

float from_bf16(std::uint16_t h) { return std::bit_cast<float>(std::uint32_t{h} << 16); }
std::uint16_t to_bf16(float f) {
  if (std::isnan(f)) return 0x7fc0;
  const auto u = std::bit_cast<std::uint32_t>(f);
  return static_cast<std::uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
float from_fp16(std::uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  float x = exponent == 31
                ? (fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity())
            : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                            : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return h & 0x8000 ? -x : x;
}
/// The nearest of all halves, by exhaustive search; the even one on a tie.
std::uint16_t to_fp16(float f) {
  const std::uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  if (std::isnan(f)) return static_cast<std::uint16_t>(sign | 0x7e00);
  const double x = std::fabs(static_cast<double>(f));
  if (x >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  std::uint16_t low = 0, high = 0x7bff;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (static_cast<double>(from_fp16(middle)) <= x ? low : high) = middle;
  }
  const double below = x - static_cast<double>(from_fp16(low)), above = static_cast<double>(from_fp16(high)) - x;
  const bool up = above < below || (above == below && (high & 1) == 0);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

template <class T>
T load(const unsigned char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <class T>
void store(unsigned char* p, T x) {
  std::memcpy(p, &x, sizeof x);
}

template <class C>
C apply(Fold fold, C a, C x) {
  switch (fold) {
    case Fold::sum:
    case Fold::mean:
      if constexpr (std::is_integral_v<C>)
        return static_cast<C>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(x));
      else
        return a + x;
    case Fold::product:
      if constexpr (std::is_integral_v<C>)
        return static_cast<C>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(x));
      else
        return a * x;
    case Fold::min:
      return a != a || a < x ? a : x;
    case Fold::max:
      return a != a || a > x ? a : x;
  }
  return a;
}

/// One element: fetch(r) are the inputs, `start` may be null.
template <class C, class Fetch>
C fold_element(const Reduce& what, const C* start, const Fetch& fetch) {
  C acc = start ? apply(what.fold, *start, fetch(0)) : fetch(0);
  for (int r = 1; r < what.input_count; ++r) acc = apply(what.fold, acc, fetch(r));
  if (what.fold == Fold::mean)
    acc = static_cast<C>(acc / static_cast<C>(what.divisor > 0 ? what.divisor : what.input_count));
  return acc;
}

template <class T>
void plain_numbers(const Reduce& what, std::int64_t n, unsigned char* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = [&](const void* p) { return load<T>(static_cast<const unsigned char*>(p) + i * sizeof(T)); };
    const T start = what.start ? at(what.start) : T{};
    store<T>(out + i * sizeof(T),
             fold_element<T>(what, what.start ? &start : nullptr, [&](int r) { return at(what.inputs[r]); }));
  }
}
void halves(const Reduce& what, std::int64_t n, unsigned char* out, float (*widen)(std::uint16_t),
            std::uint16_t (*narrow)(float)) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = [&](const void* p) {
      return widen(load<std::uint16_t>(static_cast<const unsigned char*>(p) + i * 2));
    };
    float start = 0;
    if (what.start)
      start = what.fp32_output ? load<float>(static_cast<const unsigned char*>(what.start) + i * 4) : at(what.start);
    const float result =
        fold_element<float>(what, what.start ? &start : nullptr, [&](int r) { return at(what.inputs[r]); });
    if (what.fp32_output)
      store<float>(out + i * 4, result);
    else
      store<std::uint16_t>(out + i * 2, narrow(result));
  }
}
void reference_reduce(const Reduce& what, std::int64_t n, unsigned char* out) {
  switch (what.number) {
    case Number::fp32:
      return plain_numbers<float>(what, n, out);
    case Number::fp64:
      return plain_numbers<double>(what, n, out);
    case Number::bf16:
      return halves(what, n, out, from_bf16, to_bf16);
    case Number::fp16:
      return halves(what, n, out, from_fp16, to_fp16);
    case Number::int8:
      return plain_numbers<std::int8_t>(what, n, out);
    case Number::uint8:
      return plain_numbers<std::uint8_t>(what, n, out);
    case Number::int32:
      return plain_numbers<std::int32_t>(what, n, out);
    case Number::int64:
      return plain_numbers<std::int64_t>(what, n, out);
  }
}

constexpr std::array numbers{Number::fp32, Number::fp64,  Number::bf16,  Number::fp16,
                             Number::int8, Number::uint8, Number::int32, Number::int64};
bool floating(Number number) { return number <= Number::fp16; }

/// n numbers: any bits for integers; reals of mixed size and sign for floats; `specials` adds infinities and zeros.
Bytes random_numbers(Number number, std::int64_t n, std::mt19937& engine, bool specials) {
  Bytes bytes(static_cast<std::size_t>(n * size_of(number)));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-12, 12), dice(0, 19);
  for (std::int64_t i = 0; i < n; ++i) {
    unsigned char* p = bytes.data() + i * size_of(number);
    float x = std::ldexp(normal(engine), exponent(engine));
    if (specials && dice(engine) == 0) x = INFINITY;
    if (specials && dice(engine) == 1) x = -0.0f;
    switch (number) {
      case Number::fp32:
        store(p, x);
        break;
      case Number::fp64:
        store(p, static_cast<double>(x) * 1.1);
        break;
      case Number::bf16:
        store(p, to_bf16(x));
        break;
      case Number::fp16:
        store(p, to_fp16(x));
        break;
      default:
        for (std::int64_t b = 0; b < size_of(number); ++b) p[b] = static_cast<unsigned char>(engine());
    }
  }
  return bytes;
}

/// Maps all NaNs to one: their payload is unspecified.
Bytes canonical(Bytes bytes, Number number) {
  for (std::size_t i = 0; i < bytes.size(); i += static_cast<std::size_t>(size_of(number))) {
    unsigned char* p = bytes.data() + i;
    if (number == Number::fp32 && std::isnan(load<float>(p))) store(p, std::numeric_limits<float>::quiet_NaN());
    if (number == Number::fp64 && std::isnan(load<double>(p))) store(p, std::numeric_limits<double>::quiet_NaN());
    if (number == Number::bf16 && std::isnan(from_bf16(load<std::uint16_t>(p)))) store<std::uint16_t>(p, 0x7fc0);
    if (number == Number::fp16 && std::isnan(from_fp16(load<std::uint16_t>(p)))) store<std::uint16_t>(p, 0x7e00);
  }
  return bytes;
}

struct ReduceKernel : ::testing::TestWithParam<Isa> {
  const Table& k = table(GetParam());
};

TEST_P(ReduceKernel, HasTheBitsOfOneElementAtATime) {
  EXPECT_TRUE(rc::check([&] {
    Reduce what;
    what.number = *rc::gen::elementOf(numbers);
    what.fold = static_cast<Fold>(*rc::gen::inRange(0, 5));
    if (what.fold == Fold::mean && !floating(what.number)) what.fold = Fold::sum;
    what.fp32_output = (what.number == Number::bf16 || what.number == Number::fp16) && *rc::gen::arbitrary<bool>();
    const Number out_number = what.fp32_output ? Number::fp32 : what.number;
    what.input_count = *rc::gen::weightedOneOf<int>({{5, rc::gen::inRange(1, 6)}, {1, rc::gen::inRange(6, 65)}});
    what.output_count = *rc::gen::inRange(1, 4);
    what.stream = *rc::gen::arbitrary<bool>();
    if (what.fold == Fold::mean && *rc::gen::arbitrary<bool>()) what.divisor = *rc::gen::inRange(1, 20);
    const auto n = *rc::gen::inRange<std::int64_t>(0, 400);
    std::mt19937 engine(*rc::gen::inRange(0u, 10000u));
    const bool specials = *rc::gen::arbitrary<bool>();
    // Every array starts at an odd offset of its buffer.
    std::vector<Bytes> buffers;
    std::vector<const void*> inputs;
    const auto misplaced = [&](const Bytes& content) {
      const auto shift = static_cast<std::size_t>(*rc::gen::inRange(0, 70));
      Bytes buffer(content.size() + shift);
      std::copy(content.begin(), content.end(), buffer.begin() + static_cast<std::ptrdiff_t>(shift));
      buffers.push_back(std::move(buffer));
      return buffers.back().data() + shift;
    };
    for (int r = 0; r < what.input_count; ++r)
      inputs.push_back(misplaced(random_numbers(what.number, n, engine, specials)));
    what.inputs = inputs.data();
    if (*rc::gen::arbitrary<bool>()) what.start = misplaced(random_numbers(out_number, n, engine, specials));
    const auto size = static_cast<std::size_t>(n * size_of(out_number));
    Bytes expected(size);
    reference_reduce(what, n, expected.data());
    std::vector<void*> outputs;
    for (int o = 0; o < what.output_count; ++o) outputs.push_back(misplaced(Bytes(size, 0xcd)));
    what.outputs = outputs.data();

    // The range is cut at a random position.
    const auto cut = *rc::gen::inRange<std::int64_t>(0, n + 1);
    k.reduce(what, cut);
    std::vector<const void*> later;
    std::vector<void*> later_out;
    for (const void* p : inputs) later.push_back(static_cast<const char*>(p) + cut * size_of(what.number));
    for (void* p : outputs) later_out.push_back(static_cast<char*>(p) + cut * size_of(out_number));
    Reduce rest = what;
    rest.inputs = later.data(), rest.outputs = later_out.data();
    if (what.start) rest.start = static_cast<const char*>(what.start) + cut * size_of(out_number);
    k.reduce(rest, n - cut);
    for (const void* p : outputs) {
      const auto* begin = static_cast<const unsigned char*>(p);
      RC_ASSERT(canonical(Bytes(begin, begin + size), out_number) == canonical(expected, out_number));
    }
  }));
}

TEST_P(ReduceKernel, AnOutputMayBeAnInput) {
  std::mt19937 engine(7);
  for (const Number number : numbers)
    for (int which = 0; which < 3; ++which) {
      const std::int64_t n = 333;
      std::vector<Bytes> rows;
      for (int r = 0; r < 3; ++r) rows.push_back(random_numbers(number, n, engine, false));
      const std::array<const void*, 3> inputs{rows[0].data(), rows[1].data(), rows[2].data()};
      void* out = rows[static_cast<std::size_t>(which)].data();
      Reduce what{.number = number, .inputs = inputs.data(), .input_count = 3, .outputs = &out};
      Bytes expected(rows[0].size());
      reference_reduce(what, n, expected.data());
      what.stream = which == 1;
      k.reduce(what, n);
      EXPECT_EQ(rows[static_cast<std::size_t>(which)], expected) << static_cast<int>(number) << " " << which;
    }
}

// Folding the ranks of one step after another equals the sequential fold, however many ranks each step takes.
TEST_P(ReduceKernel, FoldsContinueWhereTheLastOneEnded) {
  std::mt19937 engine(9);
  const std::int64_t n = 1000;
  for (const Number number : {Number::fp32, Number::fp64, Number::bf16, Number::fp16}) {
    const bool half = number == Number::bf16 || number == Number::fp16;
    std::vector<Bytes> rows;
    for (int i = 0; i < 12; ++i) rows.push_back(random_numbers(number, n, engine, false));
    std::vector<Bytes> results;
    for (const int ranks : {1, 2, 3, 4, 6, 12}) {
      Bytes acc(static_cast<std::size_t>(n) * (number == Number::fp64 ? 8 : 4));
      void* out = acc.data();
      for (int first = 0; first < 12; first += ranks) {
        std::vector<const void*> inputs;
        for (int r = 0; r < ranks; ++r) inputs.push_back(rows[static_cast<std::size_t>(first + r)].data());
        Reduce what{.number = number, .inputs = inputs.data(), .input_count = ranks, .outputs = &out, .start = out};
        what.fp32_output = half;
        k.reduce(what, n);
      }
      results.push_back(acc);
      EXPECT_EQ(acc, results[0]) << ranks;
    }
  }
}

TEST_P(ReduceKernel, EveryHalfSurvivesTheWayThroughFp32) {
  for (const Number number : {Number::bf16, Number::fp16}) {
    std::vector<std::uint16_t> all(65536), out(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    const void* in = all.data();
    void* to = out.data();
    k.reduce({.number = number, .inputs = &in, .input_count = 1, .outputs = &to}, 65536);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float x = number == Number::bf16 ? from_bf16(all[i]) : from_fp16(all[i]);
      const float y = number == Number::bf16 ? from_bf16(out[i]) : from_fp16(out[i]);
      if (std::isnan(x))
        ASSERT_TRUE(std::isnan(y)) << i;
      else
        ASSERT_EQ(out[i], all[i]) << i;
    }
  }
}

TEST_P(ReduceKernel, NaNIsNotLost) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Fold fold : {Fold::sum, Fold::mean, Fold::min, Fold::max, Fold::product})
    for (int where = 0; where < 3; ++where) {
      std::array<std::vector<float>, 3> rows;
      for (int r = 0; r < 3; ++r) rows[static_cast<std::size_t>(r)].assign(20, r == where ? nan : 1.0f);
      const std::array<const void*, 3> inputs{rows[0].data(), rows[1].data(), rows[2].data()};
      std::vector<float> result(20);
      void* out = result.data();
      k.reduce({.fold = fold, .inputs = inputs.data(), .input_count = 3, .outputs = &out}, 20);
      for (const float x : result) EXPECT_TRUE(std::isnan(x)) << static_cast<int>(fold) << " " << where;
    }
}

TEST_P(ReduceKernel, StreamCopyCopies) {
  std::mt19937 engine(3);
  for (const int size : {0, 1, 63, 64, 65, 255, 256, 1000, 70000})
    for (const int shift : {0, 1, 13, 64}) {
      const Bytes from = random_numbers(Number::uint8, size + 70, engine, false);
      Bytes to(static_cast<std::size_t>(size + 140), 0xab), expected = to;
      std::copy_n(from.begin() + 7, size, expected.begin() + shift);
      k.stream_copy(to.data() + shift, from.data() + 7, size);
      ASSERT_EQ(to, expected) << size << " " << shift;
    }
}

INSTANTIATE_TEST_SUITE_P(Isa, ReduceKernel, ::testing::ValuesIn(runnable()), name_of);

TEST(ReduceArguments, AreChecked) {
  const float x = 1;
  float y = 0;
  const void* in = &x;
  void* out = &y;
  EXPECT_ANY_THROW(reduce({.inputs = &in, .input_count = 0, .outputs = &out}, 1));
  EXPECT_ANY_THROW(reduce({.inputs = &in, .input_count = 65, .outputs = &out}, 1));
  EXPECT_ANY_THROW(reduce({.inputs = &in, .input_count = 1, .outputs = &out, .output_count = 0}, 1));
  EXPECT_ANY_THROW(
      reduce({.number = Number::int32, .fold = Fold::mean, .inputs = &in, .input_count = 1, .outputs = &out}, 1));
  EXPECT_ANY_THROW(reduce({.inputs = &in, .input_count = 1, .outputs = &out, .fp32_output = true}, 1));
  reduce({.inputs = &in, .input_count = 1, .outputs = &out}, 1);
  EXPECT_EQ(y, 1);
}

}  // namespace
