#include <tessera/optim/factored_sums.h>

#include <ATen/ATen.h>
#include <tessera/kernels/cpu/adafactor.h>
#include <tessera/kernels/cpu/binned_sums.h>
#include <tessera/nn/parallel_for.h>

#include <algorithm>
#include <mutex>

namespace tessera::optim {
namespace {

using kernels::bin_count;

/// The rows of one piece that a single task sums.
struct Task {
  std::int64_t offset, numel;  ///< in the piece
};

/// Cuts at the ends of rows, so no row belongs to two tasks. A task has at most 2^14 rows, fewer than the sums can
/// accept without a carry.
std::vector<Task> tasks_of(const MatrixShape& shape, std::int64_t begin, std::int64_t n) {
  constexpr std::int64_t task_numel = 1 << 19, most_rows = 1 << 14;
  const std::int64_t rows = std::clamp<std::int64_t>(task_numel / shape.columns, 1, most_rows);
  std::vector<Task> tasks;
  for (std::int64_t offset = 0; offset < n;) {
    const std::int64_t end = ((begin + offset) / shape.columns + rows) * shape.columns - begin;
    tasks.push_back({offset, std::min(end, n) - offset});
    offset += tasks.back().numel;
  }
  return tasks;
}

}  // namespace

MatrixShape matrix_shape(const std::vector<std::int64_t>& shape) {
  MatrixShape result{1, shape.back(), shape[shape.size() - 2]};
  for (std::size_t d = 0; d + 1 < shape.size(); ++d) result.rows *= shape[d];
  return result;
}

FactoredSums::FactoredSums(const MatrixShape& shape, bool exact)
    : shape_(shape), exact_(exact && bin_count * (shape.rows + shape.column_sums()) <= 2 * shape.rows * shape.columns) {
  if (exact_) {
    row_bins_.resize(static_cast<std::size_t>(bin_count * shape.rows));
    column_bins_.resize(static_cast<std::size_t>(bin_count * shape.column_sums()));
  } else {
    row_sums_ = at::zeros({shape.rows}, at::kDouble);
    column_sums_ = at::zeros({shape.column_sums()}, at::kDouble);
  }
}

void FactoredSums::add(const at::Tensor& gradient, double gradient_scale, std::int64_t begin) {
  if (gradient.numel() == 0) return;
  if (exact_) return add_exactly(gradient, gradient_scale, begin);
  const auto [row, column] = places_of(shape_, begin, gradient.numel(), gradient.device());
  const at::Tensor squares = (gradient.reshape({-1}) * gradient_scale).to(at::kDouble).square_();
  const auto sums = [&](std::int64_t count, const at::Tensor& index) {
    return at::zeros({count}, squares.options()).index_add_(0, index, squares).cpu();
  };
  row_sums_ += sums(shape_.rows, row);
  column_sums_ += sums(shape_.column_sums(), column);
}

void FactoredSums::add_exactly(const at::Tensor& gradient, double gradient_scale, std::int64_t begin) {
  const float* g = gradient.const_data_ptr<float>();
  const std::vector<Task> tasks = tasks_of(shape_, begin, gradient.numel());
  std::mutex mutex;
  nn::parallel_for(0, static_cast<std::int64_t>(tasks.size()), 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> own;
    for (std::int64_t t = first; t < last; ++t) {
      const Task& task = tasks[static_cast<std::size_t>(t)];
      const std::int64_t from = begin + task.offset, matrix_numel = shape_.period * shape_.columns;
      const std::int64_t first_matrix = from / matrix_numel, first_row = first_matrix * shape_.period;
      const std::int64_t columns = ((from + task.numel - 1) / matrix_numel + 1 - first_matrix) * shape_.columns;
      own.assign(static_cast<std::size_t>(bin_count * columns + 8), 0.0);
      kernels::bin_squares(g + task.offset, static_cast<float>(gradient_scale), from - first_matrix * matrix_numel,
                           task.numel,
                           {.row_bins = row_bins_.data() + first_row,
                            .row_stride = shape_.rows,
                            .column_bins = own.data(),
                            .column_stride = columns,
                            .columns = shape_.columns,
                            .period = shape_.period});
      kernels::carry_bins(own.data(), columns);
      const std::lock_guard lock(mutex);
      double* into = column_bins_.data() + first_matrix * shape_.columns;
      kernels::merge_bins(into, shape_.column_sums(), own.data(), columns, columns);
    }
  });
}

void FactoredSums::put(ShardSums& sums) {
  const auto span_of = [](const at::Tensor& t) {
    return std::span<const double>(t.const_data_ptr<double>(), static_cast<std::size_t>(t.numel()));
  };
  place_ = sums.put(exact_ ? std::span<const double>(row_bins_) : span_of(row_sums_));
  sums.put(exact_ ? std::span<const double>(column_bins_) : span_of(column_sums_));
}

void FactoredSums::get(ShardSums& sums) {
  const std::int64_t rows = shape_.rows, columns = shape_.column_sums(), words = exact_ ? bin_count : 1;
  row_sums_ = at::empty({rows}, at::kDouble);
  column_sums_ = at::empty({columns}, at::kDouble);
  const auto read = [&](std::size_t place, std::int64_t count, const at::Tensor& to) {
    const std::span<double> values = sums.values(place, static_cast<std::size_t>(words * count));
    if (exact_)
      kernels::bin_values(values.data(), count, to.data_ptr<double>());
    else
      std::copy(values.begin(), values.end(), to.data_ptr<double>());
  };
  read(place_, rows, row_sums_);
  read(place_ + static_cast<std::size_t>(words * rows), columns, column_sums_);
}

std::pair<at::Tensor, at::Tensor> places_of(const MatrixShape& shape, std::int64_t begin, std::int64_t n,
                                            at::Device device) {
  const at::Tensor index = at::arange(begin, begin + n, at::TensorOptions(at::kLong).device(device));
  const at::Tensor row = index.div(shape.columns, "floor");
  return {row, row.div(shape.period, "floor").mul_(shape.columns).add_(index.remainder(shape.columns))};
}

}  // namespace tessera::optim
