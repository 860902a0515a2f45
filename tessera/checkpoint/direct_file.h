#pragma once
/// \file
/// A file opened so that reads and writes bypass the page cache, if the file system supports that: the training's data
/// stays in the cache, and reads come from the disk. Addresses, offsets and lengths must be multiples of io_alignment
/// (staging.h).

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace tessera::checkpoint {

class DirectFile {
 public:
  /// `flags`: of open(2), without O_DIRECT and O_CLOEXEC. On failure fd() is -1 and errno is set.
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
