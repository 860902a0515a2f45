#pragma once
/// \file
/// Layer normalisation (Ba et al. 2016) fused with the preceding residual addition.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension. x [..., C], weight and bias [C]. y has x's
/// type; under autocast fp32.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

/// The consumers of a normalised tensor. If they are only linear maps, autocast rounds it in each of them; a device's
/// kernel then stores it directly in autocast's type (bfloat16), and its gradients have that type where they are added.
/// A map that computes with its input before the product (fp8, activation_quantization, dropout before adapters) gets
/// the rounded tensor.
enum class NormReaders { any, linear_maps };  // the minimum of two values suits both

struct ResidualNorm {
  at::Tensor sum;     ///< x + delta + delta_bias: the continuing residual stream
  at::Tensor normed;  ///< layer_norm(sum)
};
/// Both in one pass, and in backward the two gradients that are added at `sum` in one pass. x, delta [..., C],
/// delta_bias [C]; delta and delta_bias may be undefined (sum is then x itself; use it instead of x, so that the
/// gradients are added here). Types may differ, as under autocast: sum has the widest, and each gradient the type of
/// its tensor.
ResidualNorm add_layer_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& delta_bias,
                            const at::Tensor& weight, const at::Tensor& bias, double eps,
                            NormReaders readers = NormReaders::any);

}  // namespace tessera::nn
