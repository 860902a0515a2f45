#include <tessera/parallel/compression/powersgd.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>
#include <tessera/base/hash.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::parallel {

namespace {

// A compressed segment.
struct Matrix {
  std::string key;
  FlatRange range;
  std::int64_t rows, columns, rank;
  at::Tensor value;  // [rows, columns]: gradient + error
  at::Tensor p, q;   // [rows, rank], [columns, rank]: views of the messages
};

std::vector<Matrix> matrices_of(const ReductionRequest& request, const PowerSgdOptions& options) {
  std::vector<Matrix> result;
  for (std::size_t i = 0; i < request.segments.size(); ++i) {
    const CompressedSegment& s = request.segments[i];
    if (s.shape.size() < 2 || s.numel == 0) continue;
    const std::int64_t rows = s.shape[0], columns = s.numel / rows, rank = std::min({options.rank, rows, columns});
    const double packed = static_cast<double>((rows + columns) * rank);
    if (packed * options.min_rate >= static_cast<double>(rows) * static_cast<double>(columns)) continue;
    result.push_back({concat(request.key, ".", i), {s.offset, s.numel}, rows, columns, rank, {}, {}, {}});
  }
  return result;
}

// The same random numbers on every rank.
at::Tensor random_query(const Matrix& matrix, std::int64_t step, const at::TensorOptions& options) {
  const std::uint64_t seed = fnv1a(matrix.key) + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(step + 1);
  return at::randn({matrix.columns, matrix.rank}, at::detail::createCPUGenerator(seed), options.device(at::kCPU))
      .to(options.device());
}

// A gradient of low rank (zero, or with few used rows of an embedding) leaves zero columns; without new directions
// these would stay zero in all later steps.
void refill(const at::Tensor& query, const Matrix& matrix, std::int64_t step) {
  const at::Tensor empty = query.abs().sum(0).eq(0);  // [rank]
  if (!empty.any().item<bool>()) return;
  query.copy_(at::where(empty, random_query(matrix, step + 1, query.options()), query));
  orthonormalize_columns(query);
}

}  // namespace

void orthonormalize_columns(const at::Tensor& matrix) {
  const double tiny = matrix.scalar_type() == at::kDouble ? 1e-13 : 1e-6;
  for (std::int64_t j = 0; j < matrix.size(1); ++j) {
    const at::Tensor column = matrix.select(1, j);
    const double before = column.norm().item<double>();
    double once = before, after = before;
    if (j > 0) {
      const at::Tensor earlier = matrix.narrow(1, 0, j);
      for (double* norm : {&once, &after}) {
        column.sub_(at::mv(earlier, at::mv(earlier.t(), column)));
        *norm = column.norm().item<double>();
      }
    }
    // A column that depends on the others leaves rounding errors, which are in their span: the second pass removes most
    // of them, but nothing of an independent column (Kahan's "twice is enough").
    const bool dependent = after <= tiny * before || after < 0.5 * once;  // NaN stays
    if (dependent) {
      column.zero_();
    } else {
      column.div_(after);
    }
  }
}

comm::Work PowerSgdCompression::reduce(const ReductionRequest& request) {
  const at::NoGradGuard no_grad;
  begin(request);
  const comm::Group& group = request.group;
  if (group.size() == 1 || steps() < options_.start) return plain(request);
  std::vector<Matrix> matrices = matrices_of(request, options_);
  if (matrices.empty()) return plain(request);

  const at::Tensor gradient = in_compute_dtype(request.flat);
  std::vector<FlatRange> taken;
  std::int64_t p_numel = 0, q_numel = 0;
  for (const Matrix& m : matrices) {
    taken.push_back(m.range);
    p_numel += m.rows * m.rank;
    q_numel += m.columns * m.rank;
  }
  const std::vector<FlatRange> rest = complement(taken, gradient.numel());
  const std::int64_t rest_numel = numel_of(rest);

  // One message: all Ps and the uncompressed ranges.
  const at::Tensor first = at::empty({p_numel + rest_numel}, gradient.options());
  const at::Tensor second = at::empty({q_numel}, gradient.options());
  first.narrow(0, p_numel, rest_numel).copy_(packed(gradient, rest));
  std::int64_t p_at = 0, q_at = 0;
  for (Matrix& m : matrices) {
    m.p = first.narrow(0, p_at, m.rows * m.rank).view({m.rows, m.rank});
    m.q = second.narrow(0, q_at, m.columns * m.rank).view({m.columns, m.rank});
    p_at += m.rows * m.rank;
    q_at += m.columns * m.rank;
    m.value = gradient.narrow(0, m.range.begin, m.range.numel).view({m.rows, m.columns});
    if (options_.error_feedback) {
      m.value =
          m.value + error_of(errors_, m.key, steps(), m.range.numel, gradient.options()).view({m.rows, m.columns});
    }
    at::Tensor& query = queries_.of(m.key, steps());
    if (query.defined()) query = query.to(m.q.device());  // a restored tensor may be on another device
    const bool fits = query.defined() && query.sizes() == m.q.sizes();
    if (!fits || !options_.warm_start) query = random_query(m, options_.warm_start ? 0 : steps(), gradient.options());
    orthonormalize_columns(query);
    refill(query, m, steps());
    at::mm_out(m.p, m.value, query);
  }
  all_reduce(group, first).wait();
  for (Matrix& m : matrices) {
    orthonormalize_columns(m.p);
    at::mm_out(m.q, m.value.t(), m.p);
  }
  all_reduce(group, second).wait();

  const double ranks = group.size(), over = divisor(request);
  for (Matrix& m : matrices) {
    at::Tensor approximation = m.p.mm(m.q.t());  // approximates the sum
    if (!all_finite(approximation)) {
      queries_.of(m.key, steps()).reset();  // the error stays unchanged
    } else {
      if (options_.error_feedback) {
        error_of(errors_, m.key, steps(), m.range.numel, gradient.options())
            .copy_(at::sub(m.value, approximation, 1 / ranks).view({m.range.numel}));
      }
      queries_.of(m.key, steps()) = m.q.clone();
    }
    write_output(request, m.range.begin, approximation.div_(over).view({m.range.numel}));
  }
  write_output(request, rest, first.narrow(0, p_numel, rest_numel).div_(over));
  return {};
}

std::vector<std::pair<std::string, at::Tensor>> PowerSgdCompression::state() const {
  auto result = errors_.state();
  for (auto& item : queries_.state()) result.push_back(std::move(item));
  add_steps(result);
  return result;
}

void PowerSgdCompression::restore(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  restore_steps(state);
  errors_.restore(state, steps());
  queries_.restore(state, steps());
}

}  // namespace tessera::parallel
