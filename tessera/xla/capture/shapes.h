#pragma once
/// \file
/// Computes the sizes of an operator's results without running it.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace tessera::xla {

/// The operator's results for `arguments`; only their sizes, strides and types matter. They come from LibTorch's
/// meta kernel or, if it has none, from the operator itself on zeros. LibTorch's exceptions about wrong sizes pass
/// through.
std::vector<c10::IValue> shapes_of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

/// A CPU tensor with the sizes, strides and type of `meta` but no memory: LibTorch throws if its data is accessed.
at::Tensor without_memory(const at::Tensor& meta);

}  // namespace tessera::xla
