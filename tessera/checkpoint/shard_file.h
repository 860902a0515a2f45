#pragma once
/// \file
/// One safetensors file that a rank writes, whose bytes arrive in the order of the file, piece by piece: into memory
/// first (the training goes on while the file is written) or straight to the disk (nothing is kept).

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tessera/format/manifest/manifest.h>
#include <tessera/format/safetensors/safetensors.h>

namespace tessera::checkpoint {

/// How long the parts of writing took, in seconds.
struct WriteTimes {
  double write = 0;      ///< write and fsync
  double read_back = 0;  ///< reading back and comparing
};

/// The file from its list of tensors to checked bytes on the disk. One thread at a time.
class ShardFile {
 public:
  /// Tensors [begin, end) of the file.
  struct Tensors {
    std::size_t begin = 0, end = 0;  ///< indices into tensors()
  };

  /// Bytes that the image of such a file takes in memory (a multiple of io_alignment).
  static std::size_t image_bytes(const std::vector<format::TensorSpec>& tensors);

  /// Kept in `memory` (at least image_bytes, aligned as StagingBuffer's, the caller's for as long as this object lives)
  /// until write().
  ShardFile(std::string name, std::vector<format::TensorSpec> tensors, std::span<std::byte> memory);
  /// Written to FOLDER/name as it comes. Throws Error when it cannot be made.
  ShardFile(std::string name, std::vector<format::TensorSpec> tensors, const std::string& folder);
  ~ShardFile();
  ShardFile(ShardFile&&) noexcept;
  ShardFile& operator=(ShardFile&&) = delete;

  /// The next elements of the file, of the type of the tensor that they belong to: any device, any strides; a piece
  /// belongs to one tensor. The checksum is taken of these very bytes, not of what lies in the file later. Throws Error
  /// when writing fails, or when a piece is not what comes next.
  void append(const at::Tensor& piece);
  /// Writes what is kept (or completes what was written) as FOLDER/name, forces it to the disk, reads it back and
  /// compares. Touches no tensor, so it may run on a thread of its own. `cancelled` is looked at now and then; set,
  /// Error is thrown. Throws Error on failure, on pieces that are missing, on bytes that came back different, and on
  /// infinities or NaN in `finite` (naming the first that holds any).
  format::ManifestFile write(const std::string& folder, Tensors finite, const std::atomic<bool>& cancelled);

  const std::string& name() const { return name_; }                            ///< inside the folder
  std::size_t bytes() const { return size_; }                                  ///< size of the whole file
  bool full() const { return filled_ == size_; }                               ///< all elements have been appended
  const std::vector<format::TensorSpec>& tensors() const { return tensors_; }  ///< in the order of the file
  const WriteTimes& times() const { return times_; }                           ///< what write() took

 private:
  void begin(const std::string& front);
  void put(std::span<const std::byte> bytes);
  void check_finite(Tensors finite) const;
  void write_image(const std::string& path, const std::atomic<bool>& cancelled) const;

  std::string name_, path_;  // path_: of the file that is written as it comes
  std::vector<format::TensorSpec> tensors_;
  std::size_t data_begin_ = 0, size_ = 0, filled_ = 0;
  std::size_t tensor_ = 0, tensor_end_ = 0;  // the tensor that the next piece belongs to, and where it ends in the file
  std::span<std::byte> memory_;
  int fd_ = -1;
  std::vector<std::size_t> not_finite_;  // such tensors of a file that is not kept
  format::DigestBuilder builder_;
  format::Digest digest_;
  WriteTimes times_;
};

}  // namespace tessera::checkpoint
