#pragma once
/// \file
/// Gradients of experts' weights, kept apart by the process whose rows gave them. Where rows of several micro-batches
/// meet at an expert, autograd gives one gradient, the sum over all of them; sums in fixed order (docs/strategies.md)
/// need each micro-batch's own, to add them one after the other whatever process had which.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace tessera::nn {

/// Autograd gives a weight the gradient of source 0; those of the others lie here until somebody takes them.
/// Thread-safe.
class SourceGradients : public torch::CustomClassHolder {
 public:
  /// At least one source: that many processes send rows, in their order.
  explicit SourceGradients(std::int64_t sources) : sources_(sources) {}
  std::int64_t sources() const { return sources_; }

  /// `gradients` of sources 1, 2, ... of one weight join those that are there already.
  void add(const at::Tensor& weight, const std::vector<at::Tensor>& gradients);
  /// Gives them, and has none then. Empty when there are none.
  std::vector<at::Tensor> take(const at::Tensor& weight);
  /// Forgets all of them: a backward failed.
  void clear();

 private:
  std::int64_t sources_;
  std::mutex mutex_;
  std::map<const void*, std::vector<at::Tensor>> of_weight_;
};

}  // namespace tessera::nn
