#pragma once
/// \file
/// Converts between safetensors and LibTorch: dtypes, reading a tensor from a file, passing a tensor to the writer.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tessera/format/safetensors/safetensors.h>

namespace tessera::checkpoint {

at::ScalarType scalar_type(format::DType dtype);  ///< throws Error if LibTorch has no such type
/// Throws Error with the type if safetensors (or our reader) has no such type, such as complex or quantized ones.
format::DType dtype_of(at::ScalarType type);

/// A new CPU tensor with a copy of the file's bytes, in the file's dtype and shape. Throws InputError for a BOOL byte
/// other than 0 or 1. `tensor` must be one of file.tensors().
at::Tensor read_tensor(const format::SafetensorsFile& file, const format::TensorInfo& tensor);

/// The tensor (any device, any strides) as a source for the writer: it is copied to the CPU and made contiguous only
/// when needed, so only one such copy exists at a time.
format::TensorSource tensor_source(const std::string& name, const at::Tensor& tensor);
/// Same for a tensor that does not exist yet: `make` is called when it is needed. Its result lives until the source is
/// destroyed or, if several share a `slot`, until the next one is needed.
format::TensorSource tensor_source(const std::string& name, at::ScalarType type, std::vector<std::int64_t> shape,
                                   std::function<at::Tensor()> make, std::shared_ptr<at::Tensor> slot = nullptr);

}  // namespace tessera::checkpoint
