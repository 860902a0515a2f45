#pragma once
/// \file
/// A file that is read into tensors, recording checksums while reading.

#include <tessera/format/manifest/read_sums.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::checkpoint {

/// Const members may be called from several threads.
class FileReader {
 public:
  /// `sums`: records what is read, so that it need not be read again for comparison (format/manifest/read_sums.h);
  /// null: no record. Throws Error if the file cannot be opened.
  explicit FileReader(std::string path, std::shared_ptr<format::ReadSums> sums = {});
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  /// Fills `to` with `bytes` bytes starting at `offset`. Throws Error when reading fails, InputError if the file is too
  /// short.
  void read(void* to, std::int64_t bytes, std::uint64_t offset) const;

 private:
  std::string path_;
  int fd_;
  std::shared_ptr<format::ReadSums> sums_;  // null if the file is not in the folder that they describe
  std::optional<std::size_t> number_;       // index of the file in the manifest of the sums
};

}  // namespace tessera::checkpoint
