#pragma once
/// \file
/// Products of groups of rows on a device, where the host does not know how long groups are: at::_grouped_mm in bf16.

#include <ATen/core/Tensor.h>

#include <vector>

namespace tessera::nn {

/// Whether the device multiplies groups by `weights` (E of [out, in], all of one size) without a wait of the host: on a
/// CUDA device that has such a kernel, in bf16 (autocast's type, or that of x and the weights), with rows of weights
/// and of results that are multiples of 16 bytes.
bool device_groups_products(const at::Tensor& x, const std::vector<at::Tensor>& weights);

/// x_e W_e^T (`out_in`), or x_e W_e, for the rows of each group. x bf16 [R, in] (or [R, out]); ends int32 [E] on its
/// device: where each group ends; weights: rounded to bf16. Returns bf16 [R, out] (or [R, in]).
at::Tensor device_rows_of_groups(const at::Tensor& x, const at::Tensor& ends, const std::vector<at::Tensor>& weights,
                                 bool out_in);

/// dy_e^T x_e for each group: dy bf16 [R, out], x bf16 [R, in]. Returns E of [out, in], rounded to bf16, of `type`,
/// which share memory. A group without rows gets zeros.
std::vector<at::Tensor> device_weights_of_groups(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& ends,
                                                 at::ScalarType type);

}  // namespace tessera::nn
