#pragma once
/// \file
/// parallel/tensor/: parameters cut over ranks, and the meaning of operators on them. This header: functions with
/// gradients through which activations enter and leave the cut part of a layer (Megatron-LM, Shoeybi et al. 2019: f and
/// g; with sequence parallelism, Korthikanti et al. 2022). All are collective over the group; all its ranks run forward
/// and backward in the same order.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// Activations between layers are whole [B, T, ...] or, with sequence parallelism, tokens [r T / n, (r + 1) T / n) of
/// dimension 1, where n divides T.
enum class Between { whole, own_tokens };

/// The input of a column-parallel region.
struct Entered {
  at::Tensor x;
  /// Sequence number of the point in backward at which the sum of the input's gradients has been started but not yet
  /// waited for: weight gradients of the columns are computed there (nn::linear_late). nullopt: no sum is pending.
  std::optional<std::uint64_t> meanwhile;
};

/// Enters a column-parallel region (Megatron's f): x becomes whole. Backward sums the gradients, since each rank's
/// columns contribute a part (with own_tokens each rank gets the sum for its tokens). Consecutive layers with the same
/// input tensor share one entry, so that its gradient is communicated once.
Entered copy_to_tensor_parallel(const at::Tensor& x, const comm::Group& group, Between between);
/// Releases the last entered tensor and its graph, which are otherwise kept for further layers.
void forget_entered();
/// Leaves a row-parallel region (Megatron's g): the sum of all ranks' y (with own_tokens: for this rank's tokens).
/// Backward: identity (with own_tokens: gathered).
at::Tensor reduce_from_tensor_parallel(const at::Tensor& y, const comm::Group& group, Between between);
/// Called with each part of a result as soon as it is computed: sequences [begin, end) of [B, T, ...].
using PartComputed = std::function<void(const at::Tensor& part)>;
/// The same for y = product(computed): the sum of each part is in flight while the next one is computed.
at::Tensor reduce_from_tensor_parallel_in_parts(const std::function<at::Tensor(const PartComputed& computed)>& product,
                                                const comm::Group& group, Between between);

/// One rank's ranges along a dimension: [begin, end) each, ascending.
using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// The whole tensor from parts along `dim`; parts[r] is rank r's, and together they cover it; no gradient.
at::Tensor gather_parts(const at::Tensor& own, int dim, std::span<const Ranges> parts, const comm::Group& group);
/// The given part of `whole` along `dim`.
at::Tensor take_part(const at::Tensor& whole, int dim, const Ranges& part);

/// y [..., own] -> [..., all], for consumers that compute the same on every rank. Backward: this rank's part of the
/// gradient.
at::Tensor gather_from_tensor_parallel(const at::Tensor& y, std::span<const Ranges> parts, const comm::Group& group);
/// x [..., all] -> [..., own]. Backward: the gradient of all parts, gathered.
at::Tensor scatter_to_tensor_parallel(const at::Tensor& x, const comm::Group& group);

/// Rows [r N / n, (r + 1) N / n) of x [N, ...], which is the same on all ranks. Backward: the gradient of all rows,
/// gathered.
at::Tensor own_rows(const at::Tensor& x, const comm::Group& group);
/// All N rows, gathered from each rank's own_rows(). Backward: this rank's rows of the gradient.
at::Tensor all_rows(const at::Tensor& own, std::int64_t rows, const comm::Group& group);

/// This rank's tokens of x [B, T, ...]. Backward: the gradient of all tokens, gathered.
at::Tensor own_tokens(const at::Tensor& x, const comm::Group& group);
/// All tokens, for consumers that compute the same on every rank. Backward: this rank's tokens of the gradient.
at::Tensor all_tokens(const at::Tensor& x, const comm::Group& group);

}  // namespace tessera::parallel
