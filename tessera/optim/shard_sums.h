#pragma once
/// \file
/// Sums over whole parameters of which ranks hold pieces. The sums are collected in one list, added by one
/// SumOverShards call, and read back. Exact sums are sent as integers in doubles, binned sums as bins; both stay exact,
/// so the results do not depend on the cuts.

#include <tessera/optim/exact_sum.h>
#include <tessera/optim/optimizer.h>

#include <cstddef>
#include <span>
#include <vector>

namespace tessera::optim {

/// Every rank must put the same kinds of sums in the same order; put() returns the key for reading a sum back.
class ShardSums {
 public:
  explicit ShardSums(const SumOverShards& sum_over_shards) : sum_over_shards_(sum_over_shards) {}

  std::size_t put(const ExactSum& sum);
  /// Plain doubles, or carried bins.
  std::size_t put(std::span<const double> values);
  void exchange();

  double exact(std::size_t place) const;
  std::span<double> values(std::size_t place, std::size_t count);

 private:
  const SumOverShards& sum_over_shards_;
  std::vector<double> values_;
};

/// The sum of squares of the elements of a contiguous float32 or float64 tensor, on any device.
ExactSum squares_of_tensor(const at::Tensor& x);

}  // namespace tessera::optim
