#pragma once
/// \file
/// parallel/tensor/: parameters cut over ranks, and what operators on them mean. This header: how activations enter and
/// leave the cut part of a layer, as functions with gradients (Megatron-LM, Shoeybi et al. 2019: f and g; with
/// sequence parallelism, Korthikanti et al. 2022). All are collective over the group; forward and backward of all its
/// ranks run in the same order.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// Activations between layers are [B, T, ...] whole, or, in sequence parallelism, tokens [r T / n, (r + 1) T / n) of
/// dimension 1, n dividing T.
enum class Between { whole, own_tokens };

/// An input of cut columns.
struct Entered {
  at::Tensor x;
  /// Where backward has the time to form gradients of the columns' weights (nn::linear_late): the sum of the input's
  /// gradients has been started and is not awaited yet. nullopt: there is nothing to wait for.
  std::optional<std::uint64_t> meanwhile;
};

/// Into cut columns: x becomes whole. Backward: gradients are summed, as each rank's columns give a part of them (with
/// own_tokens each rank gets the sum for its tokens). Layers in a row that are given the same tensor share one
/// entering, so that its gradient travels once.
Entered copy_to_tensor_parallel(const at::Tensor& x, const comm::Group& group, Between between);
/// The tensor that entered last, and the graph behind it, are not kept any longer for layers to come.
void forget_entered();
/// Out of cut rows: the sum of all ranks' y (with own_tokens: for this rank's tokens). Backward: the gradient as it is
/// (with own_tokens: gathered).
at::Tensor reduce_from_tensor_parallel(const at::Tensor& y, const comm::Group& group, Between between);
/// Given each part of a result as soon as it has been computed, sequences [begin, end) of [B, T, ...].
using PartComputed = std::function<void(const at::Tensor& part)>;
/// The same of y = product(computed): the sum of each part is on its way while the next one is computed.
at::Tensor reduce_from_tensor_parallel_in_parts(const std::function<at::Tensor(const PartComputed& computed)>& product,
                                                const comm::Group& group, Between between);

/// What each rank holds along a dimension: [begin, end) each, ascending.
using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// The whole tensor of parts along `dim`; parts[r] is rank r's, and they cover it; no gradient.
at::Tensor gather_parts(const at::Tensor& own, int dim, std::span<const Ranges> parts, const comm::Group& group);
/// The part along `dim`.
at::Tensor take_part(const at::Tensor& whole, int dim, const Ranges& part);

/// y [..., own] -> [..., all], for what is computed alike on every rank. Backward: own part of the gradient.
at::Tensor gather_from_tensor_parallel(const at::Tensor& y, std::span<const Ranges> parts, const comm::Group& group);
/// x [..., all] -> [..., own]. Backward: the gradient of all parts.
at::Tensor scatter_to_tensor_parallel(const at::Tensor& x, const comm::Group& group);

/// Rows [r N / n, (r + 1) N / n) of x [N, ...], which all ranks have alike. Backward: the gradient of all rows.
at::Tensor own_rows(const at::Tensor& x, const comm::Group& group);
/// All N rows, of those that own_rows() gives each rank. Backward: own rows of the gradient.
at::Tensor all_rows(const at::Tensor& own, std::int64_t rows, const comm::Group& group);

/// The tokens of x [B, T, ...] that are this rank's. Backward: the gradient of all tokens.
at::Tensor own_tokens(const at::Tensor& x, const comm::Group& group);
/// All tokens, for what is computed alike on every rank. Backward: own tokens of the gradient.
at::Tensor all_tokens(const at::Tensor& x, const comm::Group& group);

}  // namespace tessera::parallel
