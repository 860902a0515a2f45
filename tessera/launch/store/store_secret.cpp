#include <tessera/launch/store/store_secret.h>

#include <tessera/base/error.h>
#include <tessera/launch/agent/sealed_fd.h>
#include <tessera/launch/store/hmac.h>

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
  return sealed_fd("tessera-secret", "the job's secret",
                   std::string_view(reinterpret_cast<const char*>(secret.data()), secret.size()));
}

Secret secret_from_fd(int fd) {
  std::array<std::uint8_t, std::tuple_size_v<Secret> + 1> bytes{};
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  if (got != static_cast<ssize_t>(std::tuple_size_v<Secret>)) {
    const std::string what = got < 0
                                 ? std::strerror(errno)
                                 : concat("it contains ", got > 32 ? "more than 32" : std::to_string(got), " bytes");
    throw InputError(concat("TESSERA_SECRET_FD=", fd, ": expected an inherited descriptor with the job's secret of 32 ",
                            "bytes, but ", what,
                            ". `tessera launch` creates it; a wrapper program must not close descriptors"));
  }
  Secret secret;
  std::memcpy(secret.data(), bytes.data(), secret.size());
  return secret;
}

}  // namespace tessera::launch
