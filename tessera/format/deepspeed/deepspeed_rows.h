#pragma once
/// \file
/// The flat tensors of a ZeRO checkpoint (deepspeed_checkpoint.h) as rows of elements that are cut into parameters.
/// Nothing is copied before the bytes of a parameter are asked for.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tessera/format/deepspeed/deepspeed_states.h>
#include <tessera/format/safetensors/safetensors.h>

namespace tessera::format::deepspeed {

/// Bytes of a file that are the next ones of a tensor.
struct Piece {
  std::shared_ptr<StateFile> file;
  std::size_t storage = 0;
  std::uint64_t begin = 0, end = 0;
};

/// Flat tensors one behind the other.
class Row {
 public:
  /// `part` must outlive the row.
  void add(const std::shared_ptr<StateFile>& file, const TorchTensor& part);
  std::uint64_t elements() const { return elements_; }
  /// Appends the elements from `begin` to `end`, which lie in the row. Takes as long as there are parts in between.
  void cut(std::uint64_t begin, std::uint64_t end, std::vector<Piece>& pieces) const;

 private:
  struct Part {
    std::uint64_t begin = 0;  ///< element of the row
    std::shared_ptr<StateFile> file;
    const TorchTensor* tensor = nullptr;
  };
  std::vector<Part> parts_;  ///< none of them empty
  std::uint64_t elements_ = 0;
};

/// Where the tensors that are not in one piece are put together: the bytes are good until the next ones are.
using Buffer = std::shared_ptr<std::vector<std::byte>>;

/// Joined in the buffer, or where they lie when they are one.
std::span<const std::byte> joined(const std::vector<Piece>& pieces, const Buffer& buffer);

/// fp16 or bf16 as fp32, in the buffer.
std::span<const std::byte> widened(std::span<const std::byte> bytes, DType dtype, const Buffer& buffer);

}  // namespace tessera::format::deepspeed
