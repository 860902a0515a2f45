#include <tessera/train/reporting/output_lock.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/system/host_name.h>
#include <tessera/base/system/open_file.h>
#include <tessera/base/text.h>

namespace tessera::train {
namespace {

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

/// The whole file. A lock of the open file, as storage/folder_lock.h has: shared file systems keep it for all hosts.
struct flock exclusive() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// False: another process has it. Where the file system has no locks nobody has.
bool take_lock(int fd, const std::string& path) {
  struct flock lock = exclusive();
  while (::fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return false;
    log::warning(path, " cannot be locked (", std::strerror(errno), "): nothing keeps a second job out of the folder");
    break;
  }
  return true;
}

}  // namespace

OutputLock::OutputLock(const std::string& output_dir, const std::string& job)
    : path_(path_join(output_dir, kOutputLock)) {
  for (;;) {
    fd_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd_) throw Error(concat(path_, " cannot be made: ", std::strerror(errno)));
    if (!take_lock(fd_.get(), path_)) refuse(output_dir, fd_.get());
    if (leads_to(path_, fd_.get())) break;  // else its former holder has removed it meanwhile
  }
  const std::string text =
      concat(job.empty() ? "a job" : concat("job ", job), ", process ", ::getpid(), " on host ", host_name("?"), "\n");
  if (::ftruncate(fd_.get(), 0) != 0 ||
      ::pwrite(fd_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    log::warning(path_, " cannot be written: a second job will not be told of this one");
}

OutputLock::~OutputLock() {
  if (leads_to(path_, fd_.get())) ::unlink(path_.c_str());  // while it is locked: who has opened it looks again
}

void require_unlocked(const std::string& output_dir) {
  const std::string path = path_join(output_dir, kOutputLock);
  const launch::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return;  // none, or not ours to open: whoever makes the lock says it
  struct flock lock = exclusive();
  if (::fcntl(fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) refuse(output_dir, fd.get());
}

}  // namespace tessera::train
