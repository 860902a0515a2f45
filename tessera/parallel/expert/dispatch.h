#pragma once
/// \file
/// Sends rows to the ranks of their experts and back.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/nn/moe/experts.h>
#include <tessera/nn/moe/source_gradients.h>

#include <cstdint>

namespace tessera::parallel {

/// How rows are sent.
struct DispatchOptions {
  std::int64_t padded_to = 0;  ///< Routing::padded_to
  /// Fixed order: each rank's rows have their own products, and weights have gradients per source (one source per
  /// rank). Empty: rows of all ranks together.
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};
};

/// Like nn::experts() over the experts of all ranks: each rank of `group` holds the same number of experts, those of
/// `weights`, numbered consecutively by rank. x [N, C], ids int64 [N, k], slot_weights [N, k] -> [N, C]. Collective,
/// and so is its backward. Rows are sent in chunks of a few experts each: one chunk is computed while others are in
/// flight, and `meanwhile` runs while the first one is. With `per_source` there is one chunk.
at::Tensor dispatched_experts(const comm::Group& group, const at::Tensor& x, const at::Tensor& ids,
                              const at::Tensor& slot_weights, const nn::ExpertWeights& weights,
                              const DispatchOptions& options, const nn::Meanwhile& meanwhile);

}  // namespace tessera::parallel
