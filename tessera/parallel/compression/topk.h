#pragma once
/// \file
/// Top-k sparsification with error feedback (Stich et al. 2018; Lin et al. 2018, Deep Gradient Compression, without its
/// momentum correction): each rank sends the k = ceil(ratio n) largest elements of gradient + error as (index, value),
/// 8 bytes each, to all ranks; the rest remains in the error. With R ranks a rank sends 8 k (R - 1) bytes, against 8 n
/// (R - 1) / R of an fp32 all-reduce: worthwhile below ratio 1 / R.

#include <tessera/parallel/compression/method.h>

namespace tessera::parallel {

class TopKCompression final : public CompressionMethod {
 public:
  explicit TopKCompression(double ratio) : ratio_(ratio) {}  ///< (0, 1]
  std::string name() const override { return "topk"; }
  /// Complete on return, since its collectives depend on each other.
  comm::Work reduce(const ReductionRequest& request) override;
  std::vector<std::pair<std::string, at::Tensor>> state() const override;
  void restore(const std::vector<std::pair<std::string, at::Tensor>>& state) override;

 private:
  double ratio_;
  KeptTensors errors_{"/error"};
};

/// Positions of the k elements of largest magnitude, ascending: int64 [k]. Ties: the first; NaN counts as larger than
/// everything. values [n], 0 <= k <= n.
at::Tensor largest_magnitudes(const at::Tensor& values, std::int64_t k);

}  // namespace tessera::parallel
