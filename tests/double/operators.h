#pragma once
/// \file
/// Shared by the double's own kernels.

#include <ATen/core/Tensor.h>

#include <vector>

#include <tests/double/order.h>

namespace cuda_double {

/// Enqueues a kernel on the current stream of `device`.
void start(const char* operation, c10::Device device, const std::vector<Access>& accesses);

/// Whether an operator (name with overload) has a kernel of its own here, which the fallback must not replace.
bool has_own_kernel(const std::string& name);

}  // namespace cuda_double
