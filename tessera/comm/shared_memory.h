#pragma once
/// \file
/// Tensors that other ranks of this host can read in place: backends that read their peers in place do not copy them
/// for a collective.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <tessera/comm/group.h>

namespace tessera::comm {

/// Like at::empty (contiguous, values undefined), but in this process's region of shared memory; a tensor of a page or
/// more is page-aligned. The memory is reused when the last tensor on it is destroyed, in any thread, and large unused
/// parts return to the system. Throws Error, with the numbers, if the region is full.
///
/// Returns ordinary memory, with one log line per process, if no peer could read it: the world's backend does not read
/// its peers in place (comm::Capabilities), init() was not called, or the device is not the CPU.
at::Tensor empty_shared(at::IntArrayRef sizes, at::TensorOptions options = {});
/// As above, but depends on `group`'s backend.
at::Tensor empty_shared(const Group& group, at::IntArrayRef sizes, at::TensorOptions options = {});
/// As at::zeros.
at::Tensor zeros_shared(const Group& group, at::IntArrayRef sizes, at::TensorOptions options = {});

/// True if the whole tensor (contiguous) is in this process's region.
bool is_shared(const at::Tensor& tensor);

}  // namespace tessera::comm
