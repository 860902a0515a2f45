#include <tessera/launch/agent/ports.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <tessera/base/error.h>
#include <tessera/base/system/endpoint.h>
#include <tessera/base/text.h>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>

namespace tessera::launch {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_UNSPEC;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(bare_host(address).c_str(), nullptr, &hints, &found);
  if (error != 0 || address.empty()) {
    throw InputError(concat("rendezvous address '", address, "': ", ::gai_strerror(error == 0 ? EAI_NONAME : error)));
  }
  return {found, &::freeaddrinfo};
}

int port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  TESSERA_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0,
                "getsockname: ", std::strerror(errno));
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

/// Returns a bound, listening socket, or an empty one with errno set.
UniqueFd try_listen(const addrinfo& where, int port) {
  UniqueFd fd(::socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const int yes = 1;  // a port in TIME_WAIT after the previous job counts as free
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage address{};
  std::memcpy(&address, where.ai_addr, where.ai_addrlen);
  if (where.ai_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(static_cast<std::uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<std::uint16_t>(port));
  }
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), where.ai_addrlen) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

[[noreturn]] void refuse(const std::string& address, int port, int error) {
  std::string hint;
  if (error == EADDRINUSE) hint = "; choose another one with --main_process_port, or omit it to get a free one";
  if (error == EADDRNOTAVAIL) hint = "; it must be an address of this host";
  if (error == EACCES) hint = "; ports below 1024 are reserved for the system";
  throw InputError(concat("rendezvous port ", port, " on ", address, ": ",
                          error == EADDRINUSE ? "the port is in use" : std::strerror(error), hint));
}

/// The first port of the kernel's ephemeral range (Linux default 32768).
int first_ephemeral_port() {
  int first = 0;
  std::ifstream in("/proc/sys/net/ipv4/ip_local_port_range");
  return in >> first ? first : 32768;
}

}  // namespace

bool is_loopback(const std::string& address) {
  const std::string bare = bare_host(address);
  return bare == "localhost" || bare == "::1" || bare.starts_with("127.");
}

BoundSocket listen_on(const std::string& address, int port) {
  if (port < 0 || port > 65535) throw InputError(concat("rendezvous port ", port, ": expected a port from 1 to 65535"));
  const Addresses addresses = resolve(address);
  int error = EADDRNOTAVAIL;
  if (port != 0) {
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      if (UniqueFd fd = try_listen(*at, port)) return {std::move(fd), port};
      error = errno;
    }
    refuse(address, port, error);
  }
  constexpr int lowest = 15000;
  const int end = first_ephemeral_port();
  std::random_device random;
  for (int attempt = 0; attempt < 64; ++attempt) {
    // The last attempts leave the choice to the kernel, because the range below the ephemeral ports may be blocked or
    // full on this host.
    const bool ours = attempt < 60 && end > lowest + 1000;
    const int candidate = ours ? lowest + static_cast<int>(random() % static_cast<unsigned>(end - lowest)) : 0;
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      if (UniqueFd fd = try_listen(*at, candidate)) {
        const int bound = port_of(fd.get());
        return {std::move(fd), bound};
      }
      error = errno;
    }
    if (error != EADDRINUSE && error != EACCES) break;
  }
  refuse(address, port, error);
}

int choose_port(const std::string& address, int port) { return listen_on(address, port).port; }

}  // namespace tessera::launch
