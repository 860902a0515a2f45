#pragma once
/// \file
/// Safely opens a file of a checkpoint's folder: only a regular file directly in that folder is accepted.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera::format {

/// A regular file opened for reading, or the reason why it could not be opened. Symbolic links, pipes (opening one
/// would block until there is a writer) and devices are refused. It is read with pread, so that a file truncated in the
/// meantime is reported instead of raising a signal. Const members may be called from several threads.
class RegularFile {
 public:
  RegularFile(const std::string& folder, const std::string& name);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& problem() const { return problem_; }  ///< e.g. "NAME is missing"; "": readable
  std::uint64_t size() const { return size_; }             ///< bytes when it was opened
  void will_read_in_order() const;

  /// Fills `to` with the bytes at offset `at`. Returns "", or the reason for a failure: end of file or an error.
  std::string read(std::uint64_t at, std::span<std::byte> to) const;

 private:
  int fd_;
  std::uint64_t size_ = 0;
  std::string problem_;
};

}  // namespace tessera::format
