#pragma once
/// \file
/// The normalizations of decoder families. Parameters are created uninitialized.

#include <torch/nn/module.h>

#include <tessera/architectures/spec.h>
#include <tessera/nn/layer_norm.h>

#include <cstdint>
#include <memory>

namespace tessera::models {

using architectures::NormForm, architectures::NormKind;

struct Norm : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x) = 0;  ///< [..., C] -> [..., C]
  /// Returns x + delta (x if delta is undefined) and its normalization.
  virtual nn::ResidualNorm add(const at::Tensor& x, const at::Tensor& delta, nn::NormReaders readers) = 0;
  at::Tensor weight;  ///< [C], or undefined
};

/// Root-mean-square normalization. With `from_one` the factor is 1 + weight, in fp32 at least.
struct RmsNorm : Norm {
  RmsNorm(std::int64_t size, double eps, bool from_one = false);
  at::Tensor forward(const at::Tensor& x) override;
  nn::ResidualNorm add(const at::Tensor& x, const at::Tensor& delta, nn::NormReaders readers) override;
  double eps;
  bool from_one;
};

/// Layer normalization with the parameters that `form` specifies.
struct MeanNorm : Norm {
  MeanNorm(std::int64_t size, const NormForm& form);
  at::Tensor forward(const at::Tensor& x) override;
  nn::ResidualNorm add(const at::Tensor& x, const at::Tensor& delta, nn::NormReaders readers) override;
  at::Tensor bias;  ///< [C], or undefined

 private:
  /// Factor and addend of x, [C] each.
  at::Tensor factor(const at::Tensor& x) const, addend(const at::Tensor& x) const;
  std::int64_t size_;
  double eps_;
  bool from_one_;
};

std::shared_ptr<Norm> make_norm(const NormForm& form, std::int64_t size);

}  // namespace tessera::models
