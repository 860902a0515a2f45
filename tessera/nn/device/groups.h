#pragma once
/// \file
/// Products of groups of rows on a device whose lengths the host does not know: at::_grouped_mm in bf16,
/// kernels/cuda/group_products.h in fp32.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace tessera::nn {

/// The type in which a CUDA device multiplies groups by `weights` (E of [out, in], all of one size) without the host
/// waiting: fp32 without autocast if x and the weights are fp32; bf16 (autocast's type, or that of x and the weights)
/// if the device has such a kernel and rows of weights and results are multiples of 16 bytes. nullopt: the host must
/// know the lengths of groups.
std::optional<at::ScalarType> device_groups_type(const at::Tensor& x, const std::vector<at::Tensor>& weights);

/// x_e W_e^T (`out_in`), or x_e W_e, for the rows of each group. x [R, in] (or [R, out]) of device_groups_type(); ends
/// int32 [E] on its device: the end of each group; weights: rounded to x's type. Returns [R, out] (or [R, in]) of that
/// type.
at::Tensor device_rows_of_groups(const at::Tensor& x, const at::Tensor& ends, const std::vector<at::Tensor>& weights,
                                 bool out_in);

/// dy_e^T x_e for each group: dy [R, out], x [R, in], both bf16 or both fp32. Returns E of [out, in], computed in their
/// type and returned in `type`, which share memory. A group without rows gets zeros.
std::vector<at::Tensor> device_weights_of_groups(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& ends,
                                                 at::ScalarType type);

}  // namespace tessera::nn
