#pragma once
/// \file
/// Linear maps of rows sorted by group, each group with its own weight: the experts' work. One autograd function each
/// for any number of groups; a group without rows gives its weights zero gradients.
///
/// Precision is nn::linear's: under autocast products run in bf16 or fp16, results and gradients of fp32 weights are
/// fp32. Gradients of weights may be deferred (weight_gradients.h). On the CPU in fp32 a whole group, or a panel of its
/// rows, is one task, and threads take the largest remaining task, so groups may be arbitrarily uneven.

#include <ATen/core/Tensor.h>

#include <tessera/nn/moe/source_gradients.h>

#include <vector>

namespace tessera::nn {

/// y = x W_e^T on the rows of group e. x [R, in]; counts int64 [E] on the CPU, adding up to R; weights: E of [out, in].
/// Instead of counts, if device_groups_type(): int32 [E] on x's device, the end of each group, the last at R; the
/// products are then the device's, and the host does not wait (nn/device/groups.h).
/// Returns [R, out]. With `per_source`, counts are [S, E]: rows are ordered by source, then by group. Every source has
/// its own products, as it would alone, and the weights' gradients of all sources but the first go to `per_source`.
at::Tensor grouped_linear(const at::Tensor& x, const at::Tensor& counts, const std::vector<at::Tensor>& weights,
                          const c10::intrusive_ptr<SourceGradients>& per_source = {});

/// W_down_e (silu(W_gate_e x) * (W_up_e x)) on the rows of group e (the gated MLP, Shazeer 2020). x [R, C]; gate, up: E
/// of [F, C]; down: E of [C, F]. Returns [R, C]. Saves x and the two products for backward. `per_source` as above.
at::Tensor grouped_mlp(const at::Tensor& x, const at::Tensor& counts, const std::vector<at::Tensor>& gate,
                       const std::vector<at::Tensor>& up, const std::vector<at::Tensor>& down,
                       const c10::intrusive_ptr<SourceGradients>& per_source = {});

}  // namespace tessera::nn
