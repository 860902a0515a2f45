#pragma once
/// \file
/// Rows that travel to the ranks of their experts, and back.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/nn/moe/experts.h>
#include <tessera/nn/moe/source_gradients.h>

#include <cstdint>

namespace tessera::parallel {

/// How rows travel.
struct DispatchOptions {
  std::int64_t padded_to = 0;  ///< Routing::padded_to
  /// Fixed order: each rank's rows have products of their own, and weights have gradients per source (as many sources
  /// as ranks). Empty: rows of all ranks together.
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};
};

/// As nn::experts() of all ranks' experts together: each rank of `group` holds as many, those of `weights`, and they
/// are numbered rank by rank. x [N, C], ids int64 [N, k], slot_weights [N, k] -> [N, C]. Collective, as its backward
/// is. Rows travel in chunks, of a few experts each: a chunk is computed while others travel, `meanwhile` while the
/// first does. With `per_source` there is one chunk.
at::Tensor dispatched_experts(const comm::Group& group, const at::Tensor& x, const at::Tensor& ids,
                              const at::Tensor& slot_weights, const nn::ExpertWeights& weights,
                              const DispatchOptions& options, const nn::Meanwhile& meanwhile);

}  // namespace tessera::parallel
