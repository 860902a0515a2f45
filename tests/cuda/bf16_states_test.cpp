// AdamW and Adam with either type of states, and the rounding of states, compared with the CPU's own loops with fused
// multiply-add: every bit is the same.
#include <tessera/kernels/cpu/dispatch.h>
#include <tessera/kernels/cuda/adamw.h>
#include <tessera/kernels/cuda/round_to_bf16.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
namespace tessera::kernels {
namespace {
#include <tests/cuda/fused_scalars.h>
// The vector type comes first.

#include <tessera/kernels/cpu/optimizer_loops.h>

void cpu_adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& a, const Bf16Rounding&) {
  adamw_loop(p, g, m, v, n, a);
}
void cpu_adamw(float* p, const float* g, std::uint16_t* m, std::uint16_t* v, std::int64_t n, const AdamwArgs& a,
               const Bf16Rounding& rounding) {
  adamw_bf16_loop(p, g, m, v, n, a, rounding);
}
}  // namespace
}  // namespace tessera::kernels
#pragma GCC diagnostic pop

namespace {

using namespace tessera::kernels;
using reference::Floats;

constexpr std::int64_t half_index = std::int64_t{1} << 32;  // where the upper half of an index changes
constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

/// `count` numbers in exactly sized memory that starts `shift` elements off its alignment.
template <class Number>
class Memory {
 public:
  Memory(std::size_t count, int shift)
      : shift_(static_cast<std::size_t>(shift)), count_(count), numbers_(new Number[count + shift_]()) {}
  Memory(const std::vector<Number>& values, int shift) : Memory(values.size(), shift) {
    std::copy(values.begin(), values.end(), begin());
  }
  Number* begin() { return numbers_.get() + shift_; }
  /// The bits, with all float32 NaNs mapped to one.
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> result;
    for (std::size_t i = 0; i < count_; ++i) {
      const Number x = numbers_[shift_ + i];
      if constexpr (std::is_same_v<Number, float>)
        result.push_back(std::isnan(x) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(x));
      else
        result.push_back(x);
    }
    return result;
  }

 private:
  std::size_t shift_, count_;
  std::unique_ptr<Number[]> numbers_;
};

void expect_same_bits(const std::vector<std::uint32_t>& device, const std::vector<std::uint32_t>& cpu) {
  const auto [here, there] = std::mismatch(device.begin(), device.end(), cpu.begin(), cpu.end());
  EXPECT_TRUE(here == device.end() && there == cpu.end())
      << "element " << here - device.begin() << " of " << device.size() << ": " << std::hex << *here << " and "
      << *there;
}

/// A parameter on the device, and a copy on the CPU.
template <class State>
struct Both {
  Both(std::size_t n, unsigned seed, int shift) : n(n), first(n, seed, shift), second(n, seed, 0), shift(shift) {}

  /// The gradient also contains non-finite numbers. Runs the CPU's step and returns the device's range.
  auto range(unsigned seed, const AdamwArgs& device, const AdamwArgs& cpu, const Bf16Rounding& rounding) {
    Floats g = reference::random(static_cast<std::int64_t>(n), seed);
    if (n > 20) g[3] = infinity, g[5] = nan, g[8] = -infinity, g[11] = -0.0F, g[13] = 1e-42F;
    gradient = std::make_unique<Memory<float>>(g, shift);
    const auto count = static_cast<std::int64_t>(n);
    cpu_adamw(second.p.begin(), gradient->begin(), second.m.begin(), second.v.begin(), count, cpu, rounding);
    if constexpr (std::is_same_v<State, float>)
      return cuda::AdamwRange{first.p.begin(), gradient->begin(), first.m.begin(), first.v.begin(), count, device};
    else
      return cuda::AdamwBf16Range{first.p.begin(), gradient->begin(), first.m.begin(), first.v.begin(), count,
                                  device,          rounding};
  }
  void expect_equal() const {
    expect_same_bits(first.p.bits(), second.p.bits());
    expect_same_bits(first.m.bits(), second.m.bits());
    expect_same_bits(first.v.bits(), second.v.bits());
  }

  struct Copy {
    Copy(std::size_t n, unsigned seed, int shift)
        : p(reference::random(static_cast<std::int64_t>(n), seed), shift), m(n, shift), v(n, shift) {}
    Memory<float> p;
    Memory<State> m, v;
  };
  std::size_t n;
  Copy first, second;
  int shift;
  std::unique_ptr<Memory<float>> gradient;
};

void step(const std::vector<cuda::AdamwRange>& ranges, const cuda::StepScalars* scalars = nullptr) {
  cuda::adamw(ranges, scalars, nullptr);
}
void step(const std::vector<cuda::AdamwBf16Range>& ranges, const cuda::StepScalars* scalars = nullptr) {
  cuda::adamw_bf16(ranges, scalars, nullptr);
}

template <class State>
void expect_the_bits_of_the_cpu(std::size_t n, int shift, bool decay_in_gradient, const Bf16Rounding& rounding) {
  cuda_tests::in_each_order([&] {
    Both<State> both(n, 1, shift);
    for (int t = 1; t <= 2; ++t) {
      const AdamwArgs a{.learning_rate = 1e-2,
                        .weight_decay = 0.1,
                        .gradient_scale = 0.7,
                        .step = t,
                        .decay_in_gradient = decay_in_gradient};
      Bf16Rounding of_step = rounding;
      of_step.key += static_cast<std::uint64_t>(t);
      step({both.range(10 + static_cast<unsigned>(t), a, a, of_step)});
    }
    both.expect_equal();
  });
}

TEST(CudaStates, HaveTheBitsOfTheCpu) {
  for (const std::size_t n : {1, 3, 4, 31, 1023, 1025})
    for (const int shift : {0, 1})
      for (const bool decay_in_gradient : {false, true}) {
        expect_the_bits_of_the_cpu<float>(n, shift, decay_in_gradient, {});
        for (const bool stochastic : {false, true})
          expect_the_bits_of_the_cpu<std::uint16_t>(n, shift, decay_in_gradient, {stochastic, 77, 64});
      }
}

TEST(CudaStates, RandomBitsFollowTheIndex) {
  for (const std::int64_t first : {half_index - 64, half_index - 1024, half_index, 5 * half_index - 3, 3 * half_index})
    expect_the_bits_of_the_cpu<std::uint16_t>(1500, 0, false, {true, 0x123456789abcdef0U, first});
}

// More ranges than one launch takes, each with different numbers, some of them empty.
template <class State>
void expect_many_ranges() {
  std::vector<Both<State>> all;
  all.reserve(130);
  std::vector<decltype(all[0].range(0, {}, {}, {}))> ranges;
  for (unsigned i = 0; i < 130; ++i) {
    all.emplace_back(i % 9 == 4 ? 0 : 1 + i * 13, i, static_cast<int>(i % 3));
    const AdamwArgs a{.learning_rate = 1e-3 * i, .weight_decay = i % 2 == 0 ? 0.1 : 0, .decay_in_gradient = i % 5 == 0};
    ranges.push_back(all.back().range(50 + i, a, a, {i % 4 != 0, i, half_index * (i % 2) - 64 * (i % 2) + 64 * i}));
  }
  step(ranges);
  for (const Both<State>& one : all) one.expect_equal();
}

TEST(CudaStates, ManyParameters) {
  expect_many_ranges<float>();
  expect_many_ranges<std::uint16_t>();
}

TEST(CudaStates, ScalarsOfTheDevice) {
  Both<std::uint16_t> both(300, 1, 0);
  const AdamwArgs a{.learning_rate = 1e-2, .weight_decay = 0.1};
  AdamwArgs scaled = a;
  scaled.gradient_scale = 0.3F;
  cuda::StepScalars scalars{.norm = 4, .gradient_scale = 0.3F, .skip = 0};
  const auto range = both.range(2, a, scaled, {true, 5, 0});
  step({range}, &scalars);
  both.expect_equal();
  scalars = {.norm = nan, .gradient_scale = nan, .skip = 1};
  step({range}, &scalars);
  both.expect_equal();
}

TEST(CudaRoundToBf16, HasTheBitsOfTheCpu) {
  for (const std::size_t n : {1, 3, 4, 7, 1024, 1500})
    for (const int shift : {0, 1})
      for (const std::int64_t first : {std::int64_t{0}, half_index - 64})
        for (const bool stochastic : {false, true}) {
          const auto count = static_cast<std::int64_t>(n);
          Memory<float> x(reference::random(count, 1), shift), y(reference::random(count, 2, 1e-3F), shift);
          if (n > 20) x.begin()[3] = infinity, x.begin()[5] = -nan, y.begin()[8] = -infinity, y.begin()[9] = nan;
          if (n > 20)  // ties whose upper or lower neighbour is even; the largest float
            for (const std::uint32_t bits : {0x3f818000U, 0x3f808000U, 0xbf838000U, 0xbf848000U, 0x7f7fffffU})
              x.begin()[bits % 7 + 10] = y.begin()[bits % 7 + 10] = std::bit_cast<float>(bits);
          const Bf16Rounding rounding{stochastic, 99, first};
          Memory<std::uint16_t> a(n, 0), b(n, 0);
          with_bf16_states(a.begin(), b.begin(), count, rounding,
                           [&](const auto& states, std::int64_t offset, std::int64_t part) {
                             for (std::int64_t i = 0; i < part; ++i)
                               states.store_both(i, 1, F32::of(x.begin()[offset + i]), F32::of(y.begin()[offset + i]));
                           });
          cuda_tests::in_each_order([&] {
            Memory<std::uint16_t> a2(n, shift), b2(n, shift);
            cuda::round_to_bf16(x.begin(), a2.begin(), count, rounding, 0, nullptr);
            cuda::round_to_bf16(y.begin(), b2.begin(), count, rounding, 1, nullptr);
            expect_same_bits(a2.bits(), a.bits());
            expect_same_bits(b2.bits(), b.bits());
          });
        }
}

}  // namespace
