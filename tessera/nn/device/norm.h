#pragma once
/// \file
/// Normalisations by a device's kernels: the device part of the autograd functions of rms_norm and layer_norm.

#include <ATen/core/Tensor.h>
#include <tessera/nn/device/kernels.h>
#include <tessera/nn/layer_norm.h>

#include <optional>

namespace tessera::nn {

/// The type of x + (delta + delta_bias); delta and delta_bias may be undefined.
at::ScalarType sum_type(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& delta_bias);

/// The type in which a device's kernel stores a normalised tensor: bfloat16 for linear maps under autocast to it, else
/// `plain`.
at::ScalarType stored_type(NormReaders readers, at::ScalarType plain);

/// The arguments of kernels::cuda::NormForward. x and delta must be contiguous; absent tensors are undefined.
struct DeviceNorm {
  at::Tensor x, delta, delta_bias, weight, bias;
  double eps = 0;
  at::ScalarType normed_type = at::kFloat;
  bool centred = false;
};
struct DeviceNormed {
  at::Tensor sum;         ///< x itself if delta is undefined, otherwise a tensor of sum_type()
  at::Tensor normed;      ///< type normed_type
  at::Tensor statistics;  ///< fp32, [1, rows]: rstd; centred [2, rows]: mean, rstd
};
DeviceNormed device_norm(const DeviceKernels& device, const DeviceNorm& a);

/// The type of a gradient; nullopt if it is not requested.
using GradientType = std::optional<at::ScalarType>;

struct DeviceNormBackward {
  at::Tensor sum, dy, dsum, weight, statistics;  ///< contiguous; dsum may be undefined
  at::ScalarType x = at::kFloat;
  GradientType delta, delta_bias, weights, bias;
};
struct DeviceNormGradients {
  at::Tensor x, delta, delta_bias, weight, bias;  ///< undefined if not requested; delta may be x
};
DeviceNormGradients device_norm_backward(const DeviceKernels& device, const DeviceNormBackward& a);

}  // namespace tessera::nn
