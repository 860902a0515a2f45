#pragma once
/// \file
/// Reads the tensors of a checkpoint one by one, each complete, regardless of how the files divide them.

#include <tessera/format/safetensors/safetensors.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tessera::tool {

class WholeTensors {
 public:
  struct Tensor {
    std::string name;
    format::DType dtype = format::DType::f32;
    std::vector<std::int64_t> shape;
    std::uint64_t bytes = 0;
  };

  /// Weights from STEM.safetensors or its shards, or from a single file. Throws InputError.
  static WholeTensors weights(const std::string& path, const std::string& stem);
  /// Opens an optimizer state, stored whole or in pieces. Throws InputError.
  static WholeTensors optimizer(const std::string& folder);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(const std::string& name) const;  ///< nullptr: none
  std::uint64_t bytes() const;                        ///< bytes of all tensors
  /// Row-major elements; valid until the next call. `tensor` must be one of tensors(). Throws Error, InputError.
  std::span<const std::byte> read(const Tensor& tensor) const {
    return read_(static_cast<std::size_t>(&tensor - tensors_.data()));
  }

 private:
  WholeTensors(std::vector<Tensor> tensors, std::function<std::span<const std::byte>(std::size_t)> read);

  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t> by_name_;
  std::function<std::span<const std::byte>(std::size_t)> read_;
};

}  // namespace tessera::tool
