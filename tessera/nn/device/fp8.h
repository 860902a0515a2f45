#pragma once
/// \file
/// Casts matrices to eight bits with a device's kernels: the device part of nn/linear_maps/fp8.h, with one scale per
/// matrix.

#include <ATen/core/Tensor.h>
#include <tessera/nn/device/kernels.h>

namespace tessera::nn {

/// kernels::cuda::Fp8Cast's arguments.
struct DeviceFp8Cast {
  at::Tensor x;                              ///< [R, C], contiguous
  at::ScalarType type = at::kFloat8_e4m3fn;  ///< or e5m2
  double most = 448;                         ///< the value that the largest magnitude is mapped to
  const float* chosen = nullptr;             ///< on the device; null: the largest magnitude of x is used
  float* noted = nullptr;                    ///< on the device; may be null
  bool straight = true, turned = false;      ///< which results are requested
};
struct DeviceFp8 {
  at::Tensor values;  ///< [R, C], or undefined
  at::Tensor turned;  ///< [C, R], or undefined
  at::Tensor scale;   ///< fp32 [1, 1]
};
DeviceFp8 device_fp8(const DeviceKernels& device, const DeviceFp8Cast& a);

}  // namespace tessera::nn
