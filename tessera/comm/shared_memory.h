#pragma once
/// \file
/// Tensors that the other ranks of this host read where they are: collectives of backends that read their peers in
/// place copy them nowhere.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <tessera/comm/group.h>

namespace tessera::comm {

/// As at::empty (contiguous, values undefined), in this process's region of shared memory; a tensor of a page or more
/// begins at a page. The memory is reused when the last tensor on it goes, in any thread, and large unused parts return
/// to the system. Throws Error, with the numbers, when the region is full.
///
/// Ordinary memory instead, with one log line per process, when nobody could read it: the world's backend does not
/// read its peers in place (comm::Capabilities), init() was not called, or the device is not the CPU.
at::Tensor empty_shared(at::IntArrayRef sizes, at::TensorOptions options = {});
/// As above, where `group`'s backend decides.
at::Tensor empty_shared(const Group& group, at::IntArrayRef sizes, at::TensorOptions options = {});
/// As at::zeros.
at::Tensor zeros_shared(const Group& group, at::IntArrayRef sizes, at::TensorOptions options = {});

/// True when the whole tensor (contiguous) lies in this process's region.
bool is_shared(const at::Tensor& tensor);

}  // namespace tessera::comm
