#pragma once
/// \file
/// Tensors in memory that is mapped from a file, to which a machine without accelerators offloads. The kernel writes
/// the pages out when memory is short and reads them back when they are touched.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <string>

namespace tessera::parallel {

/// [sizes], zero, of `options`' dtype on the CPU, in an unnamed file in `folder` (empty: TMPDIR, else /tmp) that
/// disappears with the tensor. Throws Error with path and reason when the file cannot be made or the disk has not
/// enough room.
at::Tensor zeros_in_file(const std::string& folder, at::IntArrayRef sizes, at::TensorOptions options);

}  // namespace tessera::parallel
