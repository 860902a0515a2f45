#pragma once
/// \file
/// Memory for copies of training state that are written while training continues: kept from one save to the next, so
/// that only the first one pays for fresh pages.

#include <cstddef>
#include <span>

namespace tessera::checkpoint {

/// Required alignment of addresses, offsets and lengths for direct I/O.
inline constexpr std::size_t io_alignment = 4096;

/// `bytes` rounded up to io_alignment.
constexpr std::size_t aligned_size(std::size_t bytes) {
  return (bytes + io_alignment - 1) / io_alignment * io_alignment;
}

/// Anonymous memory of its own mapping, aligned to io_alignment. Not thread-safe.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  /// At least `bytes`, with pages already mapped; contents are lost if it has to grow. Throws Error (bytes, remedy) if
  /// there is not enough memory.
  std::span<std::byte> reserve(std::size_t bytes);
  /// Frees the memory.
  void release();
  std::size_t size() const { return size_; }  ///< currently reserved bytes

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tessera::checkpoint
