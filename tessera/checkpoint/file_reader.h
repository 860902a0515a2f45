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

/// Const members may be called from several threads.
class FileReader {
 public:
  /// `sums`: where what is read is noted, so that it need not be read again to be compared
  /// (format/manifest/read_sums.h); null: nowhere. Throws Error when the file cannot be opened.
  explicit FileReader(std::string path, std::shared_ptr<format::ReadSums> sums = {});
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  /// Fills `to` with `bytes` bytes from `offset` on. Throws Error when reading fails, InputError when the file ends
  /// before.
  void read(void* to, std::int64_t bytes, std::uint64_t offset) const;

 private:
  std::string path_;
  int fd_;
  std::shared_ptr<format::ReadSums> sums_;  // null when the file is none of their folder's
  std::optional<std::size_t> number_;       // in the manifest of the sums
};

}  // namespace tessera::checkpoint
