#include <tessera/corpus/cache/descriptor.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/base/system/open_file.h>

namespace tessera::corpus {
namespace {

struct flock lock_of(short type, std::uint64_t place) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(place);
  lock.l_len = 1;
  return lock;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor open_to_read(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw InputError(concat("cannot open '", path, "': ", std::strerror(errno)));
  return file;
}

void read_all(const Descriptor& file, std::span<std::byte> into, std::uint64_t offset, const std::string& path) {
  while (!into.empty()) {
    const ssize_t n = ::pread(file.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw InputError(concat("cannot read '", path, "' at byte ", offset, ": ", std::strerror(errno)));
    if (n == 0) throw InputError(concat("'", path, "' ends at byte ", offset, "; it was longer before"));
    into = into.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

PlaceLocks::PlaceLocks(const std::string& path, bool create) : path_(path) {
  file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666));
  if (file_.get() < 0 && (errno == EACCES || errno == EROFS))  // shared locks only need read access
    file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file_.get() >= 0) return;
  const int reason = errno;
  const std::string what = concat("cannot open '", path, "': ", std::strerror(reason));
  if (reason == ENOENT) throw InputError(what);
  throw Error(what);
}

bool PlaceLocks::try_lock(std::uint64_t place, Kind kind) {
  struct flock lock = lock_of(kind == Kind::shared ? F_RDLCK : F_WRLCK, place);
  for (;;) {
    if (::fcntl(file_.get(), F_OFD_SETLK, &lock) == 0) return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return false;
    throw Error(concat("cannot lock '", path_, "': ", std::strerror(errno),
                       ": its file system does not support locks; choose a folder on another one (--data_cache_dir)"));
  }
}

void PlaceLocks::unlock(std::uint64_t place) {
  struct flock lock = lock_of(F_UNLCK, place);
  ::fcntl(file_.get(), F_OFD_SETLK, &lock);  // unlocking a place that is not locked is harmless
}

bool PlaceLocks::is_locked(std::uint64_t place) const {
  struct flock lock = lock_of(F_WRLCK, place);
  return ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool PlaceLocks::still_there() const { return leads_to(path_, file_.get()); }

}  // namespace tessera::corpus
