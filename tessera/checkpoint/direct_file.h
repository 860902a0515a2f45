#pragma once
/// \file
/// A file opened past the page cache where the file system can do that: what training needs stays in the cache, and
/// what is read comes from the disk. Addresses, offsets and lengths are multiples of io_alignment (staging.h).

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace tessera::checkpoint {

class DirectFile {
 public:
  /// open(2) flags without O_DIRECT and O_CLOEXEC. fd() is -1, with errno, when that fails.
  DirectFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC, 0644)) {
    if (fd_ < 0 && errno == EINVAL) fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  }
  ~DirectFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace tessera::checkpoint
