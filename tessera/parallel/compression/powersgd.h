#pragma once
/// \file
/// PowerSGD (Vogels, Karimireddy, Jaggi 2019): each parameter matrix M [rows, columns] of the flat gradient is replaced
/// by a product of rank r, found by one step of subspace iteration per reduction:
///
///   M += error;  P = sum over ranks of M Q;  orthogonalise P's columns;  Q = mean over ranks of M^T P;  M' = P Q^T
///
/// (rows + columns) r numbers are sent instead of rows x columns. The error M - M' is added to the next gradient, and Q
/// is the next step's start. A parameter of more than two dimensions is the matrix [shape[0], rest]; vectors, and
/// matrices that would not shrink, are reduced exactly. The first steps are not compressed, because gradients change
/// quickly there. All ranks compute the same P and Q from the same sums; bit-identical results require identical CPUs.

#include <tessera/parallel/compression/method.h>

namespace tessera::parallel {

using layout::PowerSgdOptions;

class PowerSgdCompression final : public CompressionMethod {
 public:
  explicit PowerSgdCompression(const PowerSgdOptions& options) : options_(options) {}
  std::string name() const override { return "powersgd"; }
  /// Complete on return, since its collectives depend on each other.
  comm::Work reduce(const ReductionRequest& request) override;
  /// Errors, Qs and the number of steps.
  std::vector<std::pair<std::string, at::Tensor>> state() const override;
  void restore(const std::vector<std::pair<std::string, at::Tensor>>& state) override;

 private:
  PowerSgdOptions options_;
  KeptTensors errors_{"/error"}, queries_{"/query"};  ///< per matrix, under KEY.SEGMENT
};

/// Makes the columns of matrix [rows, r] orthonormal in place (Gram-Schmidt, twice for stability). Columns that depend
/// on earlier ones become zero.
void orthonormalize_columns(const at::Tensor& matrix);

}  // namespace tessera::parallel
