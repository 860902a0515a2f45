#pragma once
/// \file
/// A disk that can be full.

#include <gtest/gtest.h>

#include <tessera/base/file.h>

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace tessera::testing {

/// A separate file system of 4 MiB. Needs root.
class SmallDisk {
 public:
  SmallDisk() : mounted_(::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=4m") == 0) {}
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }
  /// Fills the disk except for `left` bytes (in blocks of 4 KiB), until free_space().
  void fill(int left = 0) const {
    const int fd = ::open(path("ballast").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    const std::string bytes(4096, 'x');
    off_t written = 0;
    for (ssize_t n = 0; (n = ::write(fd, bytes.data(), bytes.size())) > 0;) written += n;
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_EQ(::ftruncate(fd, written - left), 0);
    ::close(fd);
  }
  void free_space() const { ::unlink(path("ballast").c_str()); }

 private:
  TemporaryFolder folder_;
  bool mounted_;
};

}  // namespace tessera::testing
