#pragma once
/// \file
/// Between safetensors and LibTorch: dtypes, reading a tensor out of a file, offering a tensor to the writer.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tessera/format/safetensors/safetensors.h>

namespace tessera::checkpoint {

at::ScalarType scalar_type(format::DType dtype);  ///< throws Error where LibTorch has none
/// Throws Error naming the type when safetensors (or our reader of it) has none for it, e.g. complex or quantised ones.
format::DType dtype_of(at::ScalarType type);

/// A fresh CPU tensor holding a copy of the file's bytes, in the file's dtype and shape. A BOOL byte other than 0 or 1
/// throws InputError. `tensor` must be one of file.tensors().
at::Tensor read_tensor(const format::SafetensorsFile& file, const format::TensorInfo& tensor);

/// The tensor (any device, any strides) as something to write: it is brought to the CPU and made contiguous only when
/// its turn comes, so one such copy exists at a time.
format::TensorSource tensor_source(const std::string& name, const at::Tensor& tensor);
/// The same for a tensor that does not exist yet: `make` is called when its turn comes. What it makes lives until the
/// source is gone, or, when several share a `slot`, until the next one's turn.
format::TensorSource tensor_source(const std::string& name, at::ScalarType type, std::vector<std::int64_t> shape,
                                   std::function<at::Tensor()> make, std::shared_ptr<at::Tensor> slot = nullptr);

}  // namespace tessera::checkpoint
