#pragma once
/// \file
/// Gradients of experts' weights, kept separate per process that sent the rows. If rows of several micro-batches reach
/// one expert, autograd gives one gradient, the sum over all of them; sums in fixed order (docs/strategies.md) need
/// each micro-batch's own gradient, in order to add them one after another, whichever process had which micro-batch.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace tessera::nn {

/// Autograd gives a weight the gradient of source 0; those of the other sources are stored here until they are taken.
/// Thread-safe.
class SourceGradients : public torch::CustomClassHolder {
 public:
  /// `sources`: number of processes that send rows, at least one.
  explicit SourceGradients(std::int64_t sources) : sources_(sources) {}
  std::int64_t sources() const { return sources_; }

  /// Adds `gradients` of sources 1, 2, ... of one weight to those stored already.
  void add(const at::Tensor& weight, const std::vector<at::Tensor>& gradients);
  /// Returns the stored gradients and removes them; may be empty.
  std::vector<at::Tensor> take(const at::Tensor& weight);
  /// Drops all gradients, after a failed backward.
  void clear();

 private:
  std::int64_t sources_;
  std::mutex mutex_;
  std::map<const void*, std::vector<at::Tensor>> of_weight_;
};

}  // namespace tessera::nn
