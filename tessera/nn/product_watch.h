#pragma once
/// \file
/// Matrix products that nn/ gives to oneDNN or BLAS directly, and attention by its own kernels, both past the
/// dispatcher: who records operators (parallel/recorder/) hears of them here.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>

namespace tessera::nn {

class ProductWatcher {
 public:
  virtual ~ProductWatcher() = default;
  /// [m, k] by [k, n], elements of so many bytes. `a`, `b`: the factors, nullptr where only pointers are known. On the
  /// thread that multiplies.
  virtual void product(std::int64_t m, std::int64_t n, std::int64_t k, double element, const at::Tensor* a,
                       const at::Tensor* b) = 0;
  /// Attention of q [B, heads, n, D] to k [B, heads, m, D], or the gradients of it. `seen`: keys that a query sees on
  /// average, of causal attention half of those before and behind it.
  virtual void attention(const at::Tensor& q, const at::Tensor& k, bool causal, double seen, bool backward) = 0;
};

/// Whoever listens; nullptr: nobody, which costs a look at it.
inline std::atomic<ProductWatcher*> product_watcher{nullptr};

}  // namespace tessera::nn
