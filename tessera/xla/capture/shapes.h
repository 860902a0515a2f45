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

/// The operator's results for `arguments` as tensors of the meta device: sizes, strides and types. Throws InputError
/// for an operator that LibTorch knows no such rule of, and whatever it says of wrong sizes.
std::vector<c10::IValue> shapes_of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

/// A CPU tensor with the sizes, strides and type of `meta`, and without memory: LibTorch throws where its data is
/// touched.
at::Tensor without_memory(const at::Tensor& meta);

}  // namespace tessera::xla
