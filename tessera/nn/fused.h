#pragma once
/// \file
/// What the fused paths of nn/ share: when one applies, and how its rows are split over threads.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace tessera::nn {

/// True when every defined tensor is plain fp32 on the CPU (the kernels also want rows contiguous; callers see to that).
inline bool fusable(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& t : tensors)
    if (t.defined() && !(t.device().is_cpu() && t.scalar_type() == at::kFloat && t.layout() == at::kStrided)) return false;
  return true;
}

/// Calls f(first row, end row) on at::get_num_threads() threads; a thread gets at least about 16 k elements.
template <class F>
void for_rows(std::int64_t rows, std::int64_t columns, const F& f) {
  at::parallel_for(0, rows, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, columns)), f);
}

/// The same for passes that also form `sums` column sums: each thread adds to its own rows of zeros, which are then added in
/// thread order (the result depends on the thread count only). f(first row, end row, float* sums [sums, columns]).
template <class F>
at::Tensor for_rows_with_sums(std::int64_t rows, std::int64_t columns, std::int64_t sums, const F& f) {
  const at::Tensor partial = at::zeros({at::get_num_threads(), sums, columns}, at::kFloat);
  for_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
    f(begin, end, partial.data_ptr<float>() + at::get_thread_num() * sums * columns);
  });
  return partial.size(0) == 1 ? partial[0] : partial.sum(0);
}

/// Autograd functions take an absent tensor as an empty optional, not as an undefined tensor.
inline std::optional<at::Tensor> maybe(const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

/// data_ptr of a contiguous tensor, null when undefined.
inline float* data(const at::Tensor& t) { return t.defined() ? t.data_ptr<float>() : nullptr; }
inline float* data(const std::optional<at::Tensor>& t) { return t ? t->data_ptr<float>() : nullptr; }

}  // namespace tessera::nn
