#pragma once
/// \file
/// A file that is read into tensors, with the checksums of what is read noted on the way.

#include <tessera/format/manifest/read_sums.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace tessera::checkpoint {

/// How a process reads a folder.
struct Reading {
  /// Where what is read is noted, so that it need not be read again to be compared (format/manifest/read_sums.h); null:
  /// nowhere.
  std::shared_ptr<format::ReadSums> sums = {};
};

/// Const members may be called from several threads.
class FileReader {
 public:
  /// Throws Error when it cannot be opened.
  explicit FileReader(std::string path, Reading how = {});
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  /// Fills `to` with `bytes` bytes from `offset` on. Throws Error when reading fails, InputError when the file ends
  /// before.
  void read(void* to, std::int64_t bytes, std::uint64_t offset) const;

 private:
  std::string path_;
  int fd_;
  Reading how_;                        // sums: null when the file is none of their folder's
  std::optional<std::size_t> number_;  // in the manifest of the sums
};

}  // namespace tessera::checkpoint
