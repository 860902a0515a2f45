#pragma once
/// \file
/// Rows that travel to the ranks of their experts, and back.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/nn/moe/experts.h>

#include <cstdint>

namespace tessera::parallel {

/// As nn::experts() of all ranks' experts together: each rank of `group` holds as many, those of `weights`, and they
/// are numbered rank by rank. x [N, C], ids int64 [N, k], slot_weights [N, k] -> [N, C]; `padded_to` as
/// nn::Routing has it. Collective, as its backward is.
at::Tensor dispatched_experts(const comm::Group& group, const at::Tensor& x, const at::Tensor& ids,
                              const at::Tensor& slot_weights, const nn::ExpertWeights& weights, std::int64_t padded_to);

}  // namespace tessera::parallel
