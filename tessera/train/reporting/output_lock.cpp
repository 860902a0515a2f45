#include <tessera/train/reporting/output_lock.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/system/host_name.h>
#include <tessera/base/system/open_file.h>
#include <tessera/base/text.h>

namespace tessera::train {
namespace {

/// The holder's description: "job a1b2, process 123 on host node7".
std::string holder(int fd) {
  std::array<char, 1024> text{};
  const ssize_t count = ::pread(fd, text.data(), text.size() - 1, 0);
  const std::string told = count > 0 ? trim(std::string(text.data(), static_cast<std::size_t>(count))) : "";
  return told.empty() ? "another job, which is just starting," : told;
}

[[noreturn]] void refuse(const std::string& output_dir, const std::string& holder) {
  throw InputError(concat("--output_dir ", output_dir, ": ", holder, " is writing there, and a folder belongs to one ",
                          "job at a time: choose another folder, or end that job first"));
}

/// Locks the whole file with an open file description lock, as in storage/folder_lock.h: shared file systems apply it
/// to all hosts.
struct flock exclusive() {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// Returns false if another process has the lock; true also if the file system has no locks.
bool take_lock(int fd, const std::string& path) {
  struct flock lock = exclusive();
  while (::fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return false;
    log::warning(path, " cannot be locked (", std::strerror(errno), "): a second job could write into the same folder");
    break;
  }
  return true;
}

/// A locked file, or the holder of its lock.
struct Taken {
  launch::UniqueFd fd = {};
  std::string holder = {};
};

/// Throws Error if the file cannot be created.
Taken take(const std::string& path, const std::string& text) {
  Taken taken;
  for (;;) {
    taken.fd.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!taken.fd && errno == EACCES && path_exists(path))
      throw Error(concat(path,
                         " belongs to another user, whose job left it behind or still writes there: remove it if no ",
                         "such job runs, or choose another folder"));
    if (!taken.fd) throw Error(concat(path, " cannot be created: ", std::strerror(errno)));
    if (!take_lock(taken.fd.get(), path)) return {.holder = holder(taken.fd.get())};
    if (leads_to(path, taken.fd.get())) break;  // otherwise its previous holder has removed it in the meantime
  }
  const int fd = taken.fd.get();
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    log::warning(path, " cannot be written: a second job will not see which job holds it");
  return taken;
}

}  // namespace

OutputLock::OutputLock(const std::string& output_dir, const std::string& job)
    : folder_(output_dir),
      path_(path_join(output_dir, kOutputLock)),
      text_(concat(job.empty() ? "a job" : concat("job ", job), ", process ", ::getpid(), " on host ", host_name("?"),
                   "\n")) {
  Taken taken = take(path_, text_);
  if (!taken.fd) refuse(output_dir, taken.holder);
  fd_ = std::move(taken.fd);
}

void OutputLock::renew() {
  if (leads_to(path_, fd_.get())) return;
  Taken taken;
  try {
    make_folders(folder_);
    taken = take(path_, text_);
  } catch (const Error&) {
    if (path_exists(path_)) throw;  // it belongs to another user and thus to another job
    return;
  }
  if (!taken.fd)
    throw Error(concat("--output_dir ", folder_, " was moved or removed while this run was writing there, and now ",
                       taken.holder, " is writing there: this run ends; its earlier files are where they were moved"));
  log::warning(path_, " was moved or removed: this run has taken the folder again");
  fd_ = std::move(taken.fd);
}

OutputLock::~OutputLock() {
  if (leads_to(path_, fd_.get()))
    // still locked, so a process that has already opened it checks again
    ::unlink(path_.c_str());
}

void require_unlocked(const std::string& output_dir) {
  const std::string path = path_join(output_dir, kOutputLock);
  const launch::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return;  // no lock file, or not ours to open: creating the lock reports the reason
  struct flock lock = exclusive();
  if (::fcntl(fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK) refuse(output_dir, holder(fd.get()));
}

}  // namespace tessera::train
