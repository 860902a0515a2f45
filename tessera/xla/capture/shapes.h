#pragma once
/// \file
/// Sizes of what an operator makes, without making it.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace tessera::xla {

/// The operator's results for `arguments`, of which sizes, strides and types count: those of LibTorch's meta kernel,
/// or, where there is none, of the operator itself on zeros. Throws whatever LibTorch says of wrong sizes.
std::vector<c10::IValue> shapes_of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

/// A CPU tensor with the sizes, strides and type of `meta`, and without memory: LibTorch throws where its data is
/// touched.
at::Tensor without_memory(const at::Tensor& meta);

}  // namespace tessera::xla
