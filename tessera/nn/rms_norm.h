#pragma once
/// \file
/// Root-mean-square normalisation (Zhang & Sennrich 2019) joined with the residual addition before it.

#include <tessera/nn/layer_norm.h>

namespace tessera::nn {

/// y = x / sqrt(average of x^2 over the last dimension + eps) * weight. x [..., C], weight [C]. Computed in fp32 at
/// least; what is multiplied by the weight is rounded to x's type first, as in transformers. The type of y is the wider
/// one.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// sum = x + delta (x itself when delta is undefined) and its normalisation in one pass; in backward the two gradients
/// that meet at `sum` likewise. x, delta [..., C].
ResidualNorm add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps,
                          NormReaders readers = NormReaders::any);

}  // namespace tessera::nn
