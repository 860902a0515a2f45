#pragma once
/// \file
/// Checks of every gradient that autograd gives, under every strategy.

#include <ATen/core/Tensor.h>

#include <string>

namespace tessera::parallel {

/// Throws Error that names the parameter when its gradient cannot be reduced: a sparse one, one with a graph of its own
/// (create_graph), or one whose type, device or shape is not what it was when the module was wrapped.
void check_gradient(const std::string& name, const at::Tensor& grad, at::ScalarType dtype, c10::Device device,
                    at::IntArrayRef sizes);

/// to = from, converted where the types differ. With `check_finite`, false when an element is not finite; only fp32
/// tensors on the CPU with equal strides are checked, in the same pass over memory.
bool copy_checked(const at::Tensor& to, const at::Tensor& from, bool check_finite);

}  // namespace tessera::parallel
