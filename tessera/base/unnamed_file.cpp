#include <tessera/base/unnamed_file.h>

#include <tessera/base/error.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tessera {

int open_unnamed_file(const std::string& folder, const std::string& purpose) {
  const char* temporary = std::getenv("TMPDIR");
  const std::string place = !folder.empty() ? folder : temporary != nullptr && *temporary != 0 ? temporary : "/tmp";
  if (const int file = open(place.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); file >= 0) return file;
  std::string path = place + "/tessera-XXXXXX";  // not every file system has O_TMPFILE
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0)
    throw InputError(concat(purpose, " to a file in '", place, "': ", std::strerror(errno),
                            "; specify an existing, writable folder on a disk with enough space"));
  unlink(path.c_str());
  return file;
}

}  // namespace tessera
