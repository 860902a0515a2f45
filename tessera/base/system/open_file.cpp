#include <tessera/base/system/open_file.h>

#include <sys/stat.h>

namespace tessera {

bool leads_to(const std::string& path, int fd) {
  struct stat there{}, opened{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &there) == 0 && there.st_ino == opened.st_ino &&
         there.st_dev == opened.st_dev;
}

}  // namespace tessera
