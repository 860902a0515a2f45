#include <tessera/launch/store/store_secret.h>

#include <tessera/base/error.h>
#include <tessera/launch/store/hmac.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tessera::launch {

Secret make_secret() {
  Secret secret;
  random_bytes(secret);
  return secret;
}

UniqueFd secret_to_fd(const Secret& secret) {
  UniqueFd fd(memfd_create("tessera-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw Error(concat("memfd_create for the job's secret: ", std::strerror(errno)));
  const ssize_t written = pwrite(fd.get(), secret.data(), secret.size(), 0);
  if (written != static_cast<ssize_t>(secret.size())) {
    throw Error(concat("writing the job's secret to a memfd: ", written < 0 ? std::strerror(errno) : "cut short"));
  }
  // No rank can change what the ranks started after it will read.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    throw Error(concat("sealing the memfd of the job's secret: ", std::strerror(errno)));
  }
  return fd;
}

Secret secret_from_fd(int fd) {
  std::array<std::uint8_t, std::tuple_size_v<Secret> + 1> bytes{};
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  if (got != static_cast<ssize_t>(std::tuple_size_v<Secret>)) {
    const std::string what =
        got < 0 ? std::strerror(errno) : concat("it holds ", got > 32 ? "more than 32" : std::to_string(got), " bytes");
    throw InputError(concat("TESSERA_SECRET_FD=", fd, ": expected an inherited descriptor with the job's secret of 32 ",
                            "bytes, but ", what,
                            ". `tessera launch` sets it up; a program in between must not close descriptors"));
  }
  Secret secret;
  std::memcpy(secret.data(), bytes.data(), secret.size());
  return secret;
}

}  // namespace tessera::launch
