#pragma once
/// \file
/// Maps each sample of a blend to its part.

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::corpus {

/// An endless sequence of parts in which part p appears with frequency weights[p] / sum, spread evenly: at any time a
/// part is at most a few samples ahead of or behind its share (like Megatron-LM's build_blending_indices). The sequence
/// repeats every `period` samples, over which weights are rounded to multiples of 1 / period (at least one each); so
/// any sample is found in O(1), and memory does not depend on the number of samples. A pure function of the weights.
class BlendOrder {
 public:
  static constexpr std::int64_t period = 65536;

  /// Weights must be above 0, and there may be at most `period`; throws InputError otherwise.
  explicit BlendOrder(std::span<const double> weights);

  struct Sample {
    std::int64_t part = 0;
    std::int64_t number = 0;  ///< number of earlier samples from the same part
  };
  Sample operator()(std::int64_t i) const;  ///< i >= 0

  std::int64_t parts() const { return static_cast<std::int64_t>(share_.size()); }
  /// The smallest number of samples that includes `count` samples of a part.
  std::int64_t samples_for(std::int64_t part, std::int64_t count) const;
  /// Number of samples of a part among the first `samples`.
  std::int64_t count(std::int64_t part, std::int64_t samples) const;
  /// The part's fraction of all samples, in [0, 1].
  double share(std::int64_t part) const {
    return static_cast<double>(share_[static_cast<std::size_t>(part)]) / static_cast<double>(period);
  }

 private:
  std::vector<std::int64_t> share_;    // samples in a period
  std::vector<std::uint16_t> part_;    // by position in the period
  std::vector<std::uint16_t> number_;  // number of earlier samples from the same part in the period
};

}  // namespace tessera::corpus
