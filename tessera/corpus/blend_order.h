#pragma once
/// \file
/// Which part of a blend each sample comes from.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::corpus {

/// An endless sequence of parts in which part p stands with frequency weights[p] / sum, spread evenly: at any
/// time a part is at most some samples ahead of its share or behind it (as with Megatron-LM's build_blending_indices).
/// The sequence repeats every `period` samples, over which weights are rounded to
/// multiples of 1 / period (at least one each); so any sample is found at once, in memory that does not depend on how
/// many there are. A pure function of the weights.
class BlendOrder {
 public:
  static constexpr std::int64_t period = 65536;

  /// Weights above 0, at most `period` of them; throws InputError for others.
  explicit BlendOrder(std::span<const double> weights);

  struct Sample {
    std::int64_t part = 0;
    std::int64_t number = 0;  ///< how many of this part stand before it
  };
  Sample operator()(std::int64_t i) const;  ///< i >= 0

  std::int64_t parts() const { return static_cast<std::int64_t>(share_.size()); }
  /// The least number of samples that has `count` of a part.
  std::int64_t samples_for(std::int64_t part, std::int64_t count) const;
  /// How many of a part are among the first `samples`.
  std::int64_t count(std::int64_t part, std::int64_t samples) const;
  /// The part's share of all samples, of 1.
  double share(std::int64_t part) const {
    return static_cast<double>(share_[static_cast<std::size_t>(part)]) / static_cast<double>(period);
  }

 private:
  std::vector<std::int64_t> share_;    // samples in a period
  std::vector<std::uint16_t> part_;    // by position in the period
  std::vector<std::uint16_t> number_;  // how many of its part stand before it in the period
};

}  // namespace tessera::corpus
