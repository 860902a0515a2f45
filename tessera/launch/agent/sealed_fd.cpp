#include <tessera/launch/agent/sealed_fd.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

namespace tessera::launch {

UniqueFd sealed_fd(const char* name, std::string_view what, std::string_view bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw Error(concat("memfd_create for ", what, ": ", std::strerror(errno)));
  write_all(fd.get(), std::as_bytes(std::span(bytes)), concat("the memfd of ", what));
  // Prevents a rank from changing what later ranks will read.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    throw Error(concat("sealing the memfd of ", what, ": ", std::strerror(errno)));
  return fd;
}

std::string text_from_fd(int fd, std::string_view variable) {
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = pread(fd, buffer, sizeof buffer, static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw InputError(concat(variable, "=", fd, ": cannot read the inherited descriptor: ", std::strerror(errno),
                              ". The agent creates it; a wrapper program must not close descriptors"));
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

}  // namespace tessera::launch
