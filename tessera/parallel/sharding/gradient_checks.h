#pragma once
/// \file
/// Checks of every gradient that autograd computes, under every strategy.

#include <ATen/core/Tensor.h>

#include <string>

namespace tessera::parallel {

/// Throws Error that names the parameter when its gradient cannot be reduced: if it is sparse, has its own graph
/// (create_graph), or differs in type, device or shape from the time the module was wrapped.
void check_gradient(const std::string& name, const at::Tensor& grad, at::ScalarType dtype, c10::Device device,
                    at::IntArrayRef sizes);

/// to = from, converted if the types differ. With `check_finite`, returns false when an element is not finite; only
/// fp32 tensors on the CPU with equal strides are checked, in the same pass over memory.
bool copy_checked(const at::Tensor& to, const at::Tensor& from, bool check_finite);

}  // namespace tessera::parallel
