#include <tessera/train/reporting/output_lock.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera::train {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "a host without a name";
}

/// What the holder has written: "job a1b2, process 123 on host node7".
std::string holder(int fd) {
  std::array<char, 1024> text{};
  const ssize_t count = ::pread(fd, text.data(), text.size() - 1, 0);
  const std::string told = count > 0 ? trim(std::string(text.data(), static_cast<std::size_t>(count))) : "";
  return told.empty() ? "another job, which is just beginning," : told;
}

[[noreturn]] void refuse(const std::string& output_dir, int fd) {
  throw InputError(concat("--output_dir ", output_dir, ": ", holder(fd),
                          " writes there now, and a folder belongs to one ",
                          "job at a time: choose another folder, or end that job first"));
}

/// True: locked. False: another has it. Nothing else is known of file systems without locks.
bool take_lock(int fd, const std::string& path) {
  for (int tries = 0; ::flock(fd, LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      if (++tries == 5) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a look of require_unlocked() is short
      continue;
    }
    log::warning(path, " cannot be locked (", std::strerror(errno), "): nothing keeps a second job out of the folder");
    break;
  }
  return true;
}

bool is_there(int fd, const std::string& path) {
  struct stat mine{}, there{};
  return ::fstat(fd, &mine) == 0 && ::stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

}  // namespace

OutputLock::OutputLock(const std::string& output_dir, const std::string& job)
    : path_(path_join(output_dir, kOutputLock)) {
  for (;;) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) throw Error(concat(path_, " cannot be made: ", std::strerror(errno)));
    if (!take_lock(fd_, path_)) {
      const int fd = std::exchange(fd_, -1);
      try {
        refuse(output_dir, fd);
      } catch (...) {
        ::close(fd);
        throw;
      }
    }
    if (is_there(fd_, path_)) break;
    ::close(fd_);  // its former holder has removed it meanwhile
  }
  const std::string text =
      concat(job.empty() ? "a job" : concat("job ", job), ", process ", ::getpid(), " on host ", host_name(), "\n");
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    log::warning(path_, " cannot be written: a second job will not be told of this one");
}

OutputLock::~OutputLock() {
  if (fd_ < 0) return;
  if (is_there(fd_, path_)) ::unlink(path_.c_str());  // while it is locked: who has opened it looks again
  ::close(fd_);
}

void require_unlocked(const std::string& output_dir) {
  const std::string path = path_join(output_dir, kOutputLock);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;  // none, or not ours to open: whoever makes the lock says it
  try {
    if (::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) refuse(output_dir, fd);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
}

}  // namespace tessera::train
