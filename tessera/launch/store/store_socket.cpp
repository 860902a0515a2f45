#include <tessera/launch/store/store_socket.h>

#include <tessera/base/error.h>
#include <tessera/base/system/endpoint.h>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tessera::launch {

using Clock = std::chrono::steady_clock;

UniqueFd listen_on(const std::string& address, int port, int& actual_port) {
  const std::string where = endpoint_text(address, port);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int failure = getaddrinfo(bare_host(address).c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failure != 0 || found == nullptr) {
    throw InputError(concat("the rendezvous store cannot listen on ", where, ": ", gai_strerror(failure),
                            ". Use an address of one of this host's interfaces"));
  }
  UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (fd) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listening =
      fd && bind(fd.get(), found->ai_addr, found->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0;
  const int cause = errno;
  freeaddrinfo(found);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (!listening || getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    throw InputError(concat("the rendezvous store cannot listen on ", where, ": ", std::strerror(cause),
                            cause == EADDRINUSE ? ". Another program uses the port; choose another one, or 0 for any"
                                                : ". The address must be one of this host's"));
  }
  actual_port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                  : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return fd;
}

UniqueFd connect_to(const std::string& host, int port, Clock::time_point deadline, std::string& why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int failure = getaddrinfo(bare_host(host).c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failure != 0) {
    why = concat("the name '", host, "' has no address: ", gai_strerror(failure));
    return {};
  }
  UniqueFd result;
  for (const addrinfo* address = found; address != nullptr && !result; address = address->ai_next) {
    UniqueFd fd(socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = 0;
    if (!fd || (connect(fd.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS)) {
      error = errno;
    } else {
      pollfd poll_fd{fd.get(), POLLOUT, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      const int ready = poll(&poll_fd, 1, static_cast<int>(std::clamp<long long>(left, 0, 1 << 30)));
      socklen_t length = sizeof error;
      if (ready <= 0) {
        error = ready == 0 ? ETIMEDOUT : errno;
      } else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        error = errno;
      }
    }
    if (error == 0) {
      result = std::move(fd);
    } else {
      why = std::strerror(error);
    }
  }
  freeaddrinfo(found);
  return result;
}

void set_store_socket_options(int fd) {
  const int on = 1, idle_s = 30, interval_s = 10, probes = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int low_delay = IPTOS_LOWDELAY, interactive = 6;  // TC_PRIO_INTERACTIVE of linux/pkt_sched.h
  setsockopt(fd, IPPROTO_IP, IP_TOS, &low_delay, sizeof low_delay);
  setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &low_delay, sizeof low_delay);  // fails on IPv4, as the previous call does
                                                                            // on IPv6
  setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &interactive, sizeof interactive);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

}  // namespace tessera::launch
