#pragma once
/// \file
/// Reports matrix products that nn/ passes to oneDNN or BLAS directly, and attention by its own kernels, both bypassing
/// the dispatcher, to code that records operators (parallel/recorder/).

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>

namespace tessera::nn {

class ProductWatcher {
 public:
  virtual ~ProductWatcher() = default;
  /// [m, k] by [k, n], with elements of `element` bytes. `a`, `b`: the factors, nullptr if only pointers are known.
  /// Called on the thread that multiplies.
  virtual void product(std::int64_t m, std::int64_t n, std::int64_t k, double element, const at::Tensor* a,
                       const at::Tensor* b) = 0;
  /// Attention of q [B, heads, n, D] to k [B, heads, m, D], or its gradients. `seen`: average number of keys that a
  /// query attends to; causal attention counts half of all pairs.
  virtual void attention(const at::Tensor& q, const at::Tensor& k, bool causal, double seen, bool backward) = 0;
};

/// The current listener; nullptr: none, which costs one load.
inline std::atomic<ProductWatcher*> product_watcher{nullptr};

}  // namespace tessera::nn
