#pragma once
/// \file
/// Tensors in file-mapped memory, to which a machine without accelerators offloads. The kernel writes the pages out
/// when memory is short and reads them back on access.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <string>

namespace tessera::parallel {

/// [sizes], zero, of `options`' dtype on the CPU, in an unnamed file in `folder` (empty: TMPDIR, else /tmp) that
/// disappears with the tensor. Throws Error with path and reason when the file cannot be created or the disk is too
/// full.
at::Tensor zeros_in_file(const std::string& folder, at::IntArrayRef sizes, at::TensorOptions options);

}  // namespace tessera::parallel
