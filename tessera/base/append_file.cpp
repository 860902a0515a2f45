#include <tessera/base/append_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/system/file_limit.h>
#include <tessera/base/system/open_file.h>

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

/// Reopens the file if its path refers to a different file or does not exist.
void AppendFile::follow() {
  if (leads_to(path_, fd_)) return;
  struct stat there{};
  const bool gone = ::stat(path_.c_str(), &there) != 0;
  if (gone && errno != ENOENT && errno != ENOTDIR) return;  // a failing disk does not mean that the file is gone
  try {
    if (const auto folder = std::filesystem::path(path_).parent_path(); !folder.empty()) make_folders(folder.string());
  } catch (const Error&) {
    return;  // keep writing to the old file
  }
  const int begun = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (begun < 0) return;
  ::close(std::exchange(fd_, begun));
  log::warning(path_, " was moved or removed, or its folder was: further records go ",
               "to a new file at this path; earlier ones are in the old file");
}

void AppendFile::append(std::string_view record) {
  if (fd_ >= 0) follow();
  waiting_ += record;
  while (!waiting_.empty()) {
    const ssize_t n = ::write(fd_, waiting_.data(), waiting_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (!std::exchange(told_, true))
        log::warning("cannot append to ", path_, ": ", write_error_text(errno),
                     "; the records are kept in memory until they can be written");
      return;
    }
    waiting_.erase(0, static_cast<std::size_t>(n));
  }
  if (std::exchange(told_, false)) log::info(path_, " is writable again; no record was lost");
}

}  // namespace tessera
