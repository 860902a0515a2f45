#pragma once
/// \file
/// One bit per element (Seide et al. 2014), with error feedback on both worker and server as in 1-bit Adam (Tang et al.
/// 2021). Every rank sends the signs of gradient + error and the mean magnitude of each row of a matrix. Rank r is the
/// server of part r: it adds the decoded parts and, if all ranks need the result, sends signs and magnitudes of it
/// (plus its own error) to all. A scattered result needs no second coding. The first steps are not compressed. Meant
/// for SGD with momentum: Adam sees equal magnitudes within a row, which suits its second moment badly.

#include <tessera/parallel/compression/method.h>

namespace tessera::parallel {

class OneBitCompression final : public CompressionMethod {
 public:
  explicit OneBitCompression(std::int64_t warmup) : warmup_(warmup) {}  ///< steps
  std::string name() const override { return "onebit"; }
  /// Complete on return, since its collectives depend on each other.
  comm::Work reduce(const ReductionRequest& request) override;
  /// Errors of both sides and the number of steps.
  std::vector<std::pair<std::string, at::Tensor>> state() const override;
  void restore(const std::vector<std::pair<std::string, at::Tensor>>& state) override;

 private:
  std::int64_t warmup_;
  KeptTensors errors_{"/error"};
};

/// Signs of values [n] (+ for >= 0; fp32 or fp64, on the CPU), eight per byte, the first in the lowest bit: uint8
/// [ceil(n / 8)].
at::Tensor pack_signs(const at::Tensor& values);

}  // namespace tessera::parallel
