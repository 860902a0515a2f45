#pragma once
/// \file
/// Row and column sums of squares of a piece of a gradient, over the last two dimensions of the parameter's true shape.
/// Adafactor's factored second moment is computed from them.

#include <ATen/core/Tensor.h>

#include <tessera/optim/shard_sums.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::optim {

/// A parameter [..., period, columns] as rows: row r belongs to matrix r / period of the batch.
struct MatrixShape {
  std::int64_t rows = 0, columns = 0, period = 0;
  std::int64_t matrices() const { return period == 0 ? 0 : rows / period; }
  std::int64_t column_sums() const { return matrices() * columns; }
};
/// The rows, columns and period of a shape with two dimensions or more.
MatrixShape matrix_shape(const std::vector<std::int64_t>& shape);

/// The sums of a whole parameter; ShardSums exchanges the ranks' parts between put() and get().
class FactoredSums {
 public:
  FactoredSums() = default;
  /// `exact`: binned sums, for float32 on the CPU. They take 8 doubles per row and column; if that would exceed twice
  /// the parameter's elements (many small matrices, or very narrow ones), plain doubles are used.
  FactoredSums(const MatrixShape& shape, bool exact);

  /// Adds the squares of gradient_scale * gradient, elements [begin, begin + numel) of the flattened parameter.
  void add(const at::Tensor& gradient, double gradient_scale, std::int64_t begin);
  void put(ShardSums& sums);
  void get(ShardSums& sums);

  /// After get(): float64 on the CPU, [rows] and [matrices * columns].
  const at::Tensor& row_sums() const { return row_sums_; }
  const at::Tensor& column_sums() const { return column_sums_; }

 private:
  void add_exactly(const at::Tensor& gradient, double gradient_scale, std::int64_t begin);

  MatrixShape shape_;
  bool exact_ = false;
  std::vector<double> row_bins_, column_bins_;  ///< [bins][rows], [bins][matrices * columns]
  at::Tensor row_sums_, column_sums_;
  std::size_t place_ = 0;
};

/// For each element of a piece, its row and its column among the columns of all matrices: int64 [n] on `device`.
std::pair<at::Tensor, at::Tensor> places_of(const MatrixShape& shape, std::int64_t begin, std::int64_t n,
                                            at::Device device);

}  // namespace tessera::optim
