#pragma once
/// \file
/// Lengths of texts: a histogram of fixed size with 16 classes for each power of two, so that a quantile is accurate to
/// within 5 %.

#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace tessera::tool {

class Lengths {
 public:
  void add(std::uint64_t length) {
    ++count_;
    sum_ += length;
    most_ = length > most_ ? length : most_;
    ++classes_[class_of(length)];
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t sum() const { return sum_; }
  std::uint64_t most() const { return most_; }
  double mean() const { return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_); }

  /// Approximate quantile: the largest length of the class in which the given share of texts ends. 0 without texts.
  std::uint64_t quantile(double share) const {
    const double wanted = share * static_cast<double>(count_);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      seen += classes_[i];
      if (seen > 0 && static_cast<double>(seen) >= wanted)
        return i + 1 == classes_.size() ? most_ : least(most_, begin_of(i + 1) - 1);
    }
    return most_;
  }
  /// Number of texts with lengths in [2^power, 2^(power + 1)); power -1: of length 0.
  std::uint64_t of_power(int power) const {
    if (power < 0) return classes_[0];
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < classes_.size(); ++i)
      if (begin_of(i) >> power == 1) sum += classes_[i];
    return sum;
  }

 private:
  static constexpr int fraction_bits = 4;
  static constexpr std::size_t per_power = std::size_t{1} << fraction_bits;

  static std::uint64_t least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }
  /// Lengths below 16 have one class each.
  static std::size_t class_of(std::uint64_t length) {
    if (length < per_power) return static_cast<std::size_t>(length);
    const int power = std::bit_width(length) - 1;
    const auto fraction = static_cast<std::size_t>(length >> (power - fraction_bits)) - per_power;
    return (static_cast<std::size_t>(power - fraction_bits) + 1) * per_power + fraction;
  }
  static std::uint64_t begin_of(std::size_t index) {
    if (index < per_power) return index;
    const std::size_t power = index / per_power - 1;
    return static_cast<std::uint64_t>(per_power + index % per_power) << power;
  }

  std::array<std::uint64_t, (64 - fraction_bits + 1) * per_power> classes_{};
  std::uint64_t count_ = 0, sum_ = 0, most_ = 0;
};

/// A text block: the statistics, and a bar for each power of two.
std::string shown(const Lengths& lengths, const std::string& what, const std::string& unit);

}  // namespace tessera::tool
