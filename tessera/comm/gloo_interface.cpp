#include <tessera/base/error.h>
#include <tessera/comm/gloo.h>
#include <tessera/launch/agent/ports.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

namespace tessera::comm {
namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  return getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

// Returns the local address of a UDP socket "connected" to host:port (nothing is sent); "" without a route.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    const bool ok = connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
    close(fd);
    if (ok) return numeric(reinterpret_cast<const sockaddr*>(&local), length);
  }
  return "";
}

// Returns the first IPv4 address of an interface that is up and not loopback; "" if there is no such interface.
std::string first_outside_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(all, freeifaddrs);
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    const bool usable = i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) != 0 &&
                        (i->ifa_flags & IFF_LOOPBACK) == 0;
    if (usable) return numeric(i->ifa_addr, sizeof(sockaddr_in));
  }
  return "";
}

}  // namespace

GlooInterface gloo_interface(const std::string& master_addr, int master_port, bool one_host) {
  if (one_host || launch::is_loopback(master_addr)) return {.name = "", .address = "127.0.0.1"};
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != 0)
    return {.name = name, .address = ""};
  std::string address = address_towards(master_addr, master_port);
  // The master's host name often resolves to 127.0.1.1 on that host itself, an address unreachable from others.
  if (address.empty() || launch::is_loopback(address)) address = first_outside_address();
  if (address.empty()) {
    throw InputError(concat("Gloo: no network interface of this host leads to MASTER_ADDR=", master_addr,
                            "; set GLOO_SOCKET_IFNAME to the interface that connects the hosts (see 'ip addr')."));
  }
  return {.name = "", .address = address};
}

}  // namespace tessera::comm
