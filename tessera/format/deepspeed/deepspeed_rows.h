#pragma once
/// \file
/// The flat tensors of a ZeRO checkpoint (deepspeed_checkpoint.h) as rows of elements that are cut into parameters.
/// Nothing is copied until the bytes of a parameter are requested.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <tessera/format/deepspeed/deepspeed_states.h>
#include <tessera/format/safetensors/safetensors.h>

namespace tessera::format::deepspeed {

/// A range of a file's bytes that contains the next elements of a tensor.
struct Piece {
  std::shared_ptr<StateFile> file;
  std::size_t storage = 0;
  std::uint64_t begin = 0, end = 0;
};

/// Concatenated flat tensors.
class Row {
 public:
  /// `part` must outlive the row.
  void add(const std::shared_ptr<StateFile>& file, const TorchTensor& part);
  std::uint64_t elements() const { return elements_; }
  /// Appends the elements [begin, end), which must be inside the row. Takes time proportional to the number of parts in
  /// between.
  void cut(std::uint64_t begin, std::uint64_t end, std::vector<Piece>& pieces) const;

 private:
  struct Part {
    std::uint64_t begin = 0;  ///< index of its first element in the row
    std::shared_ptr<StateFile> file;
    const TorchTensor* tensor = nullptr;
  };
  std::vector<Part> parts_;  ///< none of the parts is empty
  std::uint64_t elements_ = 0;
};

/// Assembles tensors that are not contiguous in a file; its bytes are valid until the next tensor is assembled.
using Buffer = std::shared_ptr<std::vector<std::byte>>;

/// Returns the pieces joined in the buffer, or in place if there is only one.
std::span<const std::byte> joined(const std::vector<Piece>& pieces, const Buffer& buffer);

/// Converts fp16 or bf16 to fp32 in the buffer.
std::span<const std::byte> widened(std::span<const std::byte> bytes, DType dtype, const Buffer& buffer);

}  // namespace tessera::format::deepspeed
