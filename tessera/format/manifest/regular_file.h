#pragma once
/// \file
/// A file of a checkpoint's folder, opened so that nothing but a regular file in that folder can be behind its name.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera::format {

/// A regular file opened for reading, or why it is not one: never a symbolic link, a pipe (opening one waits for a
/// writer), a device. Read with pread, so that one that is cut meanwhile is a finding and not a signal. Const members
/// may be called from several threads.
class RegularFile {
 public:
  RegularFile(const std::string& folder, const std::string& name);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& problem() const { return problem_; }  ///< "NAME is missing" and the like; "": it can be read
  std::uint64_t size() const { return size_; }             ///< bytes when it was opened
  void will_read_in_order() const;

  /// Fills `to` with the bytes at `at`. Returns "", or why it cannot: the end of the file or an error.
  std::string read(std::uint64_t at, std::span<std::byte> to) const;

 private:
  int fd_;
  std::uint64_t size_ = 0;
  std::string problem_;
};

}  // namespace tessera::format
