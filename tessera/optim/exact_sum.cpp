#include <tessera/optim/exact_sum.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/exact_words.h>

#include <algorithm>
#include <bit>

namespace tessera::optim {
namespace {

constexpr std::size_t nans = ExactSum::digits, positive_infinities = nans + 1, negative_infinities = nans + 2;

}  // namespace

void ExactSum::add(std::span<const double> values) {
  for (const double x : values) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const auto exponent = static_cast<unsigned>(bits >> 52 & 0x7ff);
    const bool negative = bits >> 63 != 0;
    std::uint64_t mantissa = bits & 0xfffffffffffffu;
    if (exponent == 0x7ff) {
      ++words_[mantissa != 0 ? nans : negative ? negative_infinities : positive_infinities];
      continue;
    }
    if (exponent != 0) mantissa |= std::uint64_t{1} << 52;
    const unsigned position = exponent == 0 ? 0 : exponent - 1;  // position of the mantissa's lowest bit above 2^-1074
    const unsigned shift = position % 32;
    // mantissa << shift has up to 84 bits, that is, three digits.
    const std::uint64_t low = mantissa << shift;
    const std::uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
    std::int64_t* word = words_.data() + position / 32;
    const std::int64_t sign = negative ? -1 : 1;
    word[0] += sign * static_cast<std::int64_t>(low & 0xffffffffu);
    word[1] += sign * static_cast<std::int64_t>(low >> 32);
    word[2] += sign * static_cast<std::int64_t>(high);
    if (--room_ == 0) carry();
  }
}

void ExactSum::carry() {
  kernels::carry_exact(words_.data());
  room_ = additions;
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum carried = other;
  carried.carry();
  carry();
  for (std::size_t i = 0; i < word_count; ++i) words_[i] += carried.words_[i];
}

std::vector<std::int64_t> ExactSum::words() const {
  std::vector<std::int64_t> result(words_.begin(), words_.end());
  kernels::carry_exact(result.data());
  for (std::size_t i = digits; i < word_count; ++i) result[i] = std::min<std::int64_t>(result[i], 1);
  return result;
}

ExactSum ExactSum::of_words(std::span<const std::int64_t> words) {
  TESSERA_CHECK(words.size() == word_count, "an exact sum has ", word_count, " words, not ", words.size());
  ExactSum sum;
  std::copy(words.begin(), words.end(), sum.words_.begin());
  sum.carry();
  return sum;
}

double ExactSum::value() const {
  auto words = words_;
  return kernels::exact_value(words.data());
}

}  // namespace tessera::optim
