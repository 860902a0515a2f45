#pragma once
/// \file
/// Rows of all ranks in one tensor.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

namespace tessera::faces {

/// Tensors [n_r, ...] of the ranks, joined along dimension 0 in the order of the ranks; n_r may differ, the rest may
/// not. A number [] counts as [1]. No gradient. Collective.
at::Tensor gather_rows(const comm::Group& group, const at::Tensor& tensor);

}  // namespace tessera::faces
