#pragma once
/// \file
/// The files that a rank writes of one model, filled one after another.

#include <ATen/core/Tensor.h>

#include <tessera/checkpoint/shard_file.h>
#include <tessera/train/saving/save_plan.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera::train {

class PartFiles {
 public:
  /// Bytes of memory that files take which are kept until write().
  static std::size_t image_bytes(const std::vector<PartFile>& files);

  /// Each file lies in `memory` (image_bytes(files), aligned, the caller's while this object lives) until write().
  PartFiles(std::vector<PartFile> files, std::span<std::byte> memory, const std::atomic<bool>& cancelled);
  /// Each goes to the disk, into `folder`, as it comes, and is complete there before the next one begins.
  PartFiles(std::vector<PartFile> files, std::string folder, const std::atomic<bool>& cancelled);

  /// The next elements, of one tensor. Throws Error when writing fails.
  void append(const at::Tensor& piece);
  /// After all of them: what is not yet in `folder` (of the files that go to the disk as they come, theirs) is written,
  /// forced to the disk and read back. Throws Error on failure, and on values that should be finite and are not. It may
  /// run on a thread of its own.
  const std::vector<format::ManifestFile>& write(const std::string& folder);

  std::size_t bytes() const { return bytes_; }       ///< written so far
  double write_seconds() const { return seconds_; }  ///< write and fsync of them

 private:
  bool kept() const { return folder_.empty(); }
  void open_next();
  void close();
  void finish(checkpoint::ShardFile& file, const std::string& folder);

  std::vector<PartFile> files_;
  std::string folder_;
  std::span<std::byte> memory_;  // what files that are still to come may take
  const std::atomic<bool>& cancelled_;
  std::size_t opened_ = 0;
  std::optional<checkpoint::ShardFile> open_;  // files_[opened_ - 1]
  std::vector<checkpoint::ShardFile> full_;    // kept
  std::vector<format::ManifestFile> written_;
  std::size_t bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace tessera::train
