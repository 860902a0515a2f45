#include <tessera/optim/exact_sum.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::optim {
namespace {

constexpr std::int64_t digit_mask = 0xffffffff;
constexpr int lowest_exponent = -1074;
constexpr std::size_t nans = ExactSum::digits, positive_infinities = nans + 1, negative_infinities = nans + 2;

/// Digits in [0, 2^32), but for the last one, which holds the sign.
template <class Words>
void carry_digits(Words& words) {
  for (std::size_t i = 0; i + 1 < ExactSum::digits; ++i) {
    words[i + 1] += words[i] >> 32;
    words[i] &= digit_mask;
  }
}

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
    // mantissa << shift has up to 84 bits: three digits.
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
  carry_digits(words_);
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
  carry_digits(result);
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
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (words_[nans] > 0 || (words_[positive_infinities] > 0 && words_[negative_infinities] > 0))
    return std::numeric_limits<double>::quiet_NaN();
  if (words_[positive_infinities] > 0) return infinity;
  if (words_[negative_infinities] > 0) return -infinity;

  auto words = words_;
  carry_digits(words);
  const bool negative = words[digits - 1] < 0;
  if (negative) {
    for (std::size_t i = 0; i < digits; ++i) words[i] = -words[i];
    carry_digits(words);
  }
  std::size_t top = digits;
  while (top > 0 && words[top - 1] == 0) --top;
  if (top == 0) return 0;
  const auto bit = [&](std::size_t i) { return static_cast<std::uint64_t>(words[i / 32] >> (i % 32) & 1); };
  // The top digit may have more than 32 bits: let it be one long digit.
  const std::size_t length = 32 * (top - 1) + std::bit_width(static_cast<std::uint64_t>(words[top - 1]));
  const auto bit_at = [&](std::size_t i) {
    return i / 32 < top ? bit(i) : static_cast<std::uint64_t>(words[top - 1] >> (i - 32 * (top - 1)) & 1);
  };
  const std::size_t kept = std::min<std::size_t>(length, 53);
  std::uint64_t mantissa = 0;
  for (std::size_t i = 0; i < kept; ++i) mantissa = mantissa << 1 | bit_at(length - 1 - i);
  const std::size_t dropped = length - kept;
  if (dropped > 0 && bit_at(dropped - 1) != 0) {  // half or more of a unit: up, but a tie only to even
    bool above_half = false;
    for (std::size_t i = 0; i + 1 < dropped && !above_half; ++i) above_half = bit_at(i) != 0;
    if (above_half || mantissa % 2 == 1) ++mantissa;
  }
  const double magnitude = std::ldexp(static_cast<double>(mantissa), static_cast<int>(dropped) + lowest_exponent);
  return negative ? -magnitude : magnitude;
}

}  // namespace tessera::optim
