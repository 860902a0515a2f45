#pragma once
/// \file
/// What the double's own kernels share.

#include <ATen/core/Tensor.h>

#include <vector>

#include <tests/double/order.h>

namespace cuda_double {

/// Enqueues a kernel on the current stream of `device`.
void start(const char* operation, c10::Device device, const std::vector<Access>& accesses);

/// The names (with overload) of operators that have a kernel of their own here, which the fallback must not replace.
bool has_own_kernel(const std::string& name);

}  // namespace cuda_double
