#pragma once
/// \file
/// The files of one model that a rank writes, filled one after another.

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
  /// Bytes of memory needed for files that are kept until write().
  static std::size_t image_bytes(const std::vector<PartFile>& files);

  /// Keeps every file in `memory` until write(). `memory`: image_bytes(files) bytes, aligned, owned by the caller for
  /// the lifetime of this object.
  PartFiles(std::vector<PartFile> files, std::span<std::byte> memory, const std::atomic<bool>& cancelled);
  /// Writes every file directly into `folder`; each is complete before the next one starts.
  PartFiles(std::vector<PartFile> files, std::string folder, const std::atomic<bool>& cancelled);

  /// Appends the next elements, all from one tensor. Throws Error when writing fails.
  void append(const at::Tensor& piece);
  /// Call after all append() calls: writes the files to `folder` (those written directly are already in their folder),
  /// syncs them to disk and reads them back. Throws Error on failure, and for values that should be finite but are not.
  /// May run on a separate thread.
  const std::vector<format::ManifestFile>& write(const std::string& folder);

  std::size_t bytes() const { return bytes_; }       ///< bytes written so far
  double write_seconds() const { return seconds_; }  ///< seconds for their write and fsync

 private:
  bool kept() const { return folder_.empty(); }
  void open_next();
  void close();
  void finish(checkpoint::ShardFile& file, const std::string& folder);

  std::vector<PartFile> files_;
  std::string folder_;
  std::span<std::byte> memory_;  // memory available to the remaining files
  const std::atomic<bool>& cancelled_;
  std::size_t opened_ = 0;
  std::optional<checkpoint::ShardFile> open_;  // files_[opened_ - 1]
  std::vector<checkpoint::ShardFile> full_;    // kept
  std::vector<format::ManifestFile> written_;
  std::size_t bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace tessera::train
