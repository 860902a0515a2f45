#pragma once
/// \file
/// One safetensors file that a rank writes, whose bytes arrive in file order, piece by piece: into memory first
/// (training continues while the file is written) or directly to disk (no copy).

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tessera/format/manifest/manifest.h>
#include <tessera/format/safetensors/safetensors.h>

namespace tessera::checkpoint {

/// Duration of the parts of writing, in seconds.
struct WriteTimes {
  double write = 0;      ///< write and fsync
  double read_back = 0;  ///< reading back and comparing
};

/// The file, from its list of tensors to verified bytes on disk. One thread at a time.
class ShardFile {
 public:
  /// Tensors [begin, end) of the file.
  struct Tensors {
    std::size_t begin = 0, end = 0;  ///< indices into tensors()
  };

  /// Bytes of memory for the image of such a file (a multiple of io_alignment).
  static std::size_t image_bytes(const std::vector<format::TensorSpec>& tensors);

  /// Keeps the file in `memory` until write(). `memory`: at least image_bytes, aligned like StagingBuffer's, owned by
  /// the caller for the lifetime of this object.
  ShardFile(std::string name, std::vector<format::TensorSpec> tensors, std::span<std::byte> memory);
  /// Writes to FOLDER/name as pieces arrive. Throws Error if it cannot be created.
  ShardFile(std::string name, std::vector<format::TensorSpec> tensors, const std::string& folder);
  ~ShardFile();
  ShardFile(ShardFile&&) noexcept;
  ShardFile& operator=(ShardFile&&) = delete;

  /// Appends the next elements of the file, with the type of their tensor: any device, any strides; a piece belongs to
  /// one tensor. The checksum is computed from these very bytes, not from the file's later contents. Throws Error when
  /// writing fails, or if the piece is not the expected next one.
  void append(const at::Tensor& piece);
  /// Writes the kept bytes (or completes the file) as FOLDER/name, syncs it to disk, reads it back and compares. Uses
  /// no tensor, so it may run on a separate thread. Checks `cancelled` periodically and throws Error if it is set.
  /// Throws Error on failure, on missing pieces, on bytes that differ when read back, and on infinities or NaN in
  /// `finite` (with the first tensor that contains any).
  format::ManifestFile write(const std::string& folder, Tensors finite, const std::atomic<bool>& cancelled);

  const std::string& name() const { return name_; }                            ///< inside the folder
  std::size_t bytes() const { return size_; }                                  ///< size of the whole file
  bool full() const { return filled_ == size_; }                               ///< all elements have been appended
  const std::vector<format::TensorSpec>& tensors() const { return tensors_; }  ///< in the order of the file
  const WriteTimes& times() const { return times_; }                           ///< duration of write()

 private:
  void begin(const std::string& front);
  void put(std::span<const std::byte> bytes);
  void check_finite(Tensors finite) const;
  void write_image(const std::string& path, const std::atomic<bool>& cancelled) const;

  std::string name_, path_;  // path_: only for a file that is written as pieces arrive
  std::vector<format::TensorSpec> tensors_;
  std::size_t data_begin_ = 0, size_ = 0, filled_ = 0;
  std::size_t tensor_ = 0, tensor_end_ = 0;  // tensor of the next piece, and its end in the file
  std::span<std::byte> memory_;
  int fd_ = -1;
  std::vector<std::size_t> not_finite_;  // tensors with non-finite values, in a file without a copy
  format::DigestBuilder builder_;
  format::Digest digest_;
  WriteTimes times_;
};

}  // namespace tessera::checkpoint
