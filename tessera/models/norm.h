#pragma once
/// \file
/// The normalisations of decoders, whichever a family has. Parameters are made uninitialised.

#include <torch/nn/module.h>

#include <tessera/nn/layer_norm.h>

#include <cstdint>
#include <memory>

namespace tessera::models {

enum class NormKind : std::uint8_t {
  rms,   ///< by the root of the mean square (Zhang & Sennrich 2019)
  layer  ///< by mean and variance (Ba et al. 2016)
};

/// Which norms a family has, and where they stand in a block.
struct NormForm {
  NormKind kind = NormKind::rms;
  bool weight = true;           ///< false: nothing is multiplied (OLMo)
  bool bias = false;            ///< layer norms only
  bool from_one = false;        ///< the factor is 1 + weight (Gemma, Nemotron)
  bool begins_at_zero = false;  ///< what its weights are before training (Gemma); else 1
  double eps = 1e-6;
  bool before = true, after = false;  ///< in front of attention and MLP, or on what they give
};

struct Norm : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x) = 0;  ///< [..., C] -> [..., C]
  /// x + delta (x itself when delta is undefined), and its normalisation.
  virtual nn::ResidualNorm add(const at::Tensor& x, const at::Tensor& delta) = 0;
  at::Tensor weight;  ///< [C], or undefined
};

/// Root-mean-square normalisation. With `from_one` the factor is 1 + weight, in fp32 at least.
struct RmsNorm : Norm {
  RmsNorm(std::int64_t size, double eps, bool from_one = false);
  at::Tensor forward(const at::Tensor& x) override;
  nn::ResidualNorm add(const at::Tensor& x, const at::Tensor& delta) override;
  double eps;
  bool from_one;
};

/// Layer normalisation, with as many of its parameters as the form has.
struct MeanNorm : Norm {
  MeanNorm(std::int64_t size, const NormForm& form);
  at::Tensor forward(const at::Tensor& x) override;
  nn::ResidualNorm add(const at::Tensor& x, const at::Tensor& delta) override;
  at::Tensor bias;  ///< [C], or undefined

 private:
  /// What x is multiplied by and what is added, [C] each.
  at::Tensor factor(const at::Tensor& x) const, addend(const at::Tensor& x) const;
  std::int64_t size_;
  double eps_;
  bool from_one_;
};

std::shared_ptr<Norm> make_norm(const NormForm& form, std::int64_t size);

}  // namespace tessera::models
