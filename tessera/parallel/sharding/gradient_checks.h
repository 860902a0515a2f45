#pragma once
/// \file
/// What is asked of every gradient that autograd hands over, whatever the strategy.

#include <ATen/core/Tensor.h>

#include <string>

namespace tessera::parallel {

/// Throws Error that names the parameter when its gradient cannot be reduced: a sparse one, one with a graph of its own
/// (create_graph), or one whose type, device or shape is not what it was when the module was wrapped.
void check_gradient(const std::string& name, const at::Tensor& grad, at::ScalarType dtype, c10::Device device,
                    at::IntArrayRef sizes);

/// to = from, converted where the types differ. With `check`, false when an element is not finite; only fp32 on the CPU
/// that is laid out alike is looked at, in the same pass over memory.
bool copy_checked(const at::Tensor& to, const at::Tensor& from, bool check);

}  // namespace tessera::parallel
