#pragma once
/// \file
/// Shared by the fused paths of nn/: when they apply, and how rows are split over threads.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include <tessera/kernels/cpu/rows.h>
#include <tessera/nn/capturing.h>
#include <tessera/nn/parallel_for.h>

namespace tessera::nn {

/// Whether every defined tensor is plain fp32 on the CPU (the kernels also require contiguous rows; callers ensure
/// that), and no step is being captured.
inline bool fusable(std::initializer_list<at::Tensor> tensors) {
  if (capturing()) return false;
  for (const at::Tensor& t : tensors)
    if (t.defined() && !(t.device().is_cpu() && t.scalar_type() == at::kFloat && t.layout() == at::kStrided))
      return false;
  return true;
}

/// Calls f(first row, end row) on at::get_num_threads() threads; each gets at least about 16 k elements.
template <class F>
void for_rows(std::int64_t rows, std::int64_t columns, const F& f) {
  parallel_for(0, rows, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, columns)), f);
}

/// The same for passes that also compute `sums` column sums, which f adds to `out` [sums, columns]. They are added in
/// blocks of 128 rows, then per thread, then over threads in order: the error is about sqrt(128) roundings for any
/// number of rows, and the result depends only on the number of threads. f(first row, end row, float* out).
template <class F>
at::Tensor for_rows_with_sums(std::int64_t rows, std::int64_t columns, std::int64_t sums, const F& f) {
  constexpr std::int64_t block = 128;
  const std::int64_t width = sums * columns;
  const at::Tensor partial = at::zeros({at::get_num_threads(), width}, at::kFloat);
  for_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch(static_cast<std::size_t>(width));
    float* total = partial.data_ptr<float>() + at::get_thread_num() * width;
    for (std::int64_t first = begin; first < end; first += block) {
      std::fill(scratch.begin(), scratch.end(), 0.0f);
      f(first, std::min(end, first + block), scratch.data());
      kernels::add_rows(total, scratch.data(), nullptr, total, 1, width);
    }
  });
  return (partial.size(0) == 1 ? partial[0] : partial.sum(0)).view({sums, columns});
}

/// Autograd functions represent an absent tensor by an empty optional, not by an undefined tensor.
inline std::optional<at::Tensor> maybe(const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

/// A tensor's type for AutogradContext::saved_data, and its inverse; nullopt for an undefined tensor.
inline std::int64_t saved_type(const at::Tensor& t) {
  return t.defined() ? static_cast<std::int64_t>(t.scalar_type()) : -1;
}
inline std::optional<at::ScalarType> type_of_saved(const c10::IValue& saved) {
  return saved.toInt() < 0 ? std::nullopt : std::optional(static_cast<at::ScalarType>(saved.toInt()));
}

/// data_ptr of a contiguous tensor, null when undefined.
inline float* data(const at::Tensor& t) { return t.defined() ? t.data_ptr<float>() : nullptr; }
inline float* data(const std::optional<at::Tensor>& t) { return t ? t->data_ptr<float>() : nullptr; }

}  // namespace tessera::nn
