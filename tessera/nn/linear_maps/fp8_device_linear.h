#pragma once
/// \file
/// The linear map in eight bits with operands rounded by a device's kernels (Fp8Map::kernels()): each operand is read
/// once, or twice without a delayed scale, and written in the form that the products need, straight and transposed, in
/// that pass. Tensors saved for backward are in eight bits. fp8_linear() calls it.

#include <tessera/nn/linear.h>
#include <tessera/nn/linear_maps/fp8.h>

namespace tessera::nn {

/// The kernels, if they support the map, its input and the type of its result; else null.
const DeviceKernels* fp8_device_kernels(const at::Tensor& x, const at::Tensor& weight, const Fp8Map& map);

/// fp8_linear() with these kernels. Under autocast the bias is rounded to its type if at::_scaled_mm adds it.
at::Tensor fp8_device_linear(const DeviceKernels& kernels, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, WeightLayout layout, const Fp8Scope& scope,
                             const ProductParts* parts);

}  // namespace tessera::nn
