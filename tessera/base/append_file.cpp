#include <tessera/base/append_file.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file_limit.h>
#include <tessera/base/log.h>

namespace tessera {

AppendFile::AppendFile(std::string path, int flags) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0666);
  if (fd_ < 0) throw Error(concat("cannot append to ", path_, ": ", std::strerror(errno)));
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      waiting_(std::move(other.waiting_)),
      told_(other.told_) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(waiting_, other.waiting_);
  std::swap(told_, other.told_);
  return *this;
}

void AppendFile::append(std::string_view record) {
  waiting_ += record;
  while (!waiting_.empty()) {
    const ssize_t n = ::write(fd_, waiting_.data(), waiting_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (!std::exchange(told_, true))
        log::warning("cannot append to ", path_, ": ", write_error_text(errno),
                     "; what belongs there is kept until it can be written");
      return;
    }
    waiting_.erase(0, static_cast<std::size_t>(n));
  }
  if (std::exchange(told_, false)) log::info(path_, " can be written again, and lacks nothing");
}

}  // namespace tessera
