#include <tessera/storage/folder_lock.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <tessera/base/error.h>
#include <tessera/base/system/open_file.h>
#include <tessera/base/text.h>

namespace tessera::storage {

FolderLock::FolderLock(const std::string& path, const std::atomic<bool>* cancelled) : path_(path + ".lock") {
  for (;;) {
    fd_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd_) throw Error(concat(path_, " cannot be created: ", std::strerror(errno)));
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    while (::fcntl(fd_.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR)
        throw Error(
            concat(path_, " cannot be locked: ", std::strerror(errno), ": choose a folder on another file system"));
      if (cancelled != nullptr && cancelled->load()) throw Error(path_ + ": cancelled");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    // The previous holder may have removed the file while we were waiting for the lock; another process may then hold a
    // lock on a new file.
    if (leads_to(path_, fd_.get())) return;
  }
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());  // while it is locked: waiting processes then check again
}

}  // namespace tessera::storage
