#pragma once
/// \file
/// Products of groups of rows on a device, where the host does not know how long groups are: at::_grouped_mm in bf16,
/// kernels/cuda/group_products.h in fp32.

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace tessera::nn {

/// The type in which a CUDA device multiplies groups by `weights` (E of [out, in], all of one size) without a wait of
/// the host: fp32, of x and the weights, without autocast; bf16 (autocast's type, or that of x and the weights) where
/// the device has such a kernel, with rows of weights and of results that are multiples of 16 bytes. Nothing: the host
/// must know how long groups are.
std::optional<at::ScalarType> device_groups_type(const at::Tensor& x, const std::vector<at::Tensor>& weights);

/// x_e W_e^T (`out_in`), or x_e W_e, for the rows of each group. x [R, in] (or [R, out]) of device_groups_type(); ends
/// int32 [E] on its device: where each group ends; weights: rounded to x's type. Returns [R, out] (or [R, in]) of it.
at::Tensor device_rows_of_groups(const at::Tensor& x, const at::Tensor& ends, const std::vector<at::Tensor>& weights,
                                 bool out_in);

/// dy_e^T x_e for each group: dy [R, out], x [R, in], both bf16 or both fp32. Returns E of [out, in], rounded to their
/// type, of `type`, which share memory. A group without rows gets zeros.
std::vector<at::Tensor> device_weights_of_groups(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& ends,
                                                 at::ScalarType type);

}  // namespace tessera::nn
