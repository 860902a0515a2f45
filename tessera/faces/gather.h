#pragma once
/// \file
/// Joins rows of all ranks in one tensor.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

namespace tessera::faces {

/// Joins the ranks' tensors [n_r, ...] along dimension 0 in rank order; n_r may differ, the other sizes may not. A
/// number [] counts as [1]. No gradient. Collective.
at::Tensor gather_rows(const comm::Group& group, const at::Tensor& tensor);

}  // namespace tessera::faces
