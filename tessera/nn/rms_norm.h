#pragma once
/// \file
/// Root-mean-square normalisation (Zhang & Sennrich 2019) fused with the preceding residual addition.

#include <tessera/nn/layer_norm.h>

namespace tessera::nn {

/// y = x / sqrt(average of x^2 over the last dimension + eps) * weight. x [..., C], weight [C]. Computed in fp32 at
/// least; the normalised x is rounded to x's type before it is multiplied by the weight, as in transformers. y has the
/// wider type.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// sum = x + delta (x itself if delta is undefined) and its normalisation in one pass. Backward also adds the two
/// gradients at `sum` in one pass. x, delta [..., C].
ResidualNorm add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps,
                          NormReaders readers = NormReaders::any);

}  // namespace tessera::nn
