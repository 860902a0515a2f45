#include <tessera/format/manifest/regular_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::format {

RegularFile::RegularFile(const std::string& folder, const std::string& name)
    : fd_(::open(path_join(folder, name).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  struct stat info{};
  if (fd_ < 0) {
    problem_ = errno == ENOENT  ? concat(name, " is missing")
               : errno == ELOOP ? concat(name, " is a symbolic link; the files of a checkpoint must be in its folder")
                                : concat(name, " cannot be opened: ", std::strerror(errno));
  } else if (::fstat(fd_, &info) != 0) {
    problem_ = concat(name, " cannot be opened: ", std::strerror(errno));
  } else if (!S_ISREG(info.st_mode)) {
    problem_ = concat(name, " is not a regular file");
  } else {
    size_ = static_cast<std::uint64_t>(info.st_size);
  }
}

RegularFile::~RegularFile() {
  if (fd_ >= 0) ::close(fd_);
}

void RegularFile::will_read_in_order() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL); }

std::string RegularFile::read(std::uint64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::strerror(errno);
    if (n == 0) return "the file was truncated while it was read";
    at += static_cast<std::uint64_t>(n);
    to = to.subspan(static_cast<std::size_t>(n));
  }
  return "";
}

}  // namespace tessera::format
