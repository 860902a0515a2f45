#pragma once
/// \file
/// A sum of doubles without rounding: the order of additions and their distribution over threads and ranks do not
/// matter. (Kulisch's long accumulator, with 32-bit digits in 64-bit words.)

#include <tessera/kernels/cpu/exact_words.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::optim {

/// Not synchronized: use one per thread, then merge().
class ExactSum {
 public:
  void add(double x) { add(std::span<const double>(&x, 1)); }  ///< one number
  void add(std::span<const double> values);                    ///< adds each number, in any order
  void merge(const ExactSum& other);                           ///< adds the sum in `other`

  /// The sum, rounded once (to nearest, ties to even; infinite if too large). NaN if a NaN or both infinities were
  /// added; an infinity if only that infinity was.
  double value() const;

  /// The sum as integers that can be added element by element over up to 2^16 ranks (an all-reduce) without overflow;
  /// each is below 2^32 in magnitude, so sums over 2^16 ranks are also exact as doubles.
  std::vector<std::int64_t> words() const;
  /// The sum represented by added words. Throws Error unless there are word_count of them.
  static ExactSum of_words(std::span<const std::int64_t> words);

  /// 32-bit digits from 2^-1074 to 2^1102; counts of NaN, +infinity, -infinity.
  static constexpr std::size_t digits = kernels::exact_digits, word_count = kernels::exact_words;

 private:
  void carry();

  std::array<std::int64_t, word_count> words_{};  ///< value: sum of words_[i] * 2^(32 i - 1074)
  std::int64_t room_ = additions;                 ///< additions until words_ must be carried
  static constexpr std::int64_t additions = std::int64_t{1} << 30;
};

}  // namespace tessera::optim
