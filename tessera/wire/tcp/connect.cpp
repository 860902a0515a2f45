// Connects the ranks of a group: every rank listens and publishes its addresses and a random word in the store. A rank
// connects to all lower ones and authenticates itself with their words, which it can only know from the store.
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/store/hmac.h>
#include <tessera/wire/shm/segment.h>
#include <tessera/wire/tcp/at_exit.h>
#include <tessera/wire/tcp/mesh.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

namespace tessera::wire::tcp {
namespace {

using launch::UniqueFd;

constexpr std::size_t word_bytes = 16;
using Word = std::array<std::uint8_t, word_bytes>;

struct Hello {
  Word word{};
  std::int32_t rank = 0;
};

std::string hex(const Word& word) {
  std::string text;
  for (const std::uint8_t b : word) {
    text += "0123456789abcdef"[b >> 4];
    text += "0123456789abcdef"[b & 15];
  }
  return text;
}

Word from_hex(const std::string& text) {
  Word word{};
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i < word_bytes && 2 * i + 1 < text.size(); ++i) {
    word[i] = static_cast<std::uint8_t>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
  }
  return word;
}

// Returns this host's IPv4 and IPv6 addresses that other hosts may reach, as text.
std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = at->ifa_addr->sa_family;
    char text[INET6_ADDRSTRLEN] = {};
    if (family == AF_INET) {
      inet_ntop(family, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof text);
    } else if (family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;  // meaningless without its interface
      inet_ntop(family, &address, text, sizeof text);
    }
    if (text[0] != 0) found.emplace_back(text);
  }
  freeifaddrs(all);
  return found;
}

struct Listener {
  UniqueFd fd;
  int port = 0;
};

// Listens on all interfaces, with IPv6 and IPv4 if the host has both.
Listener listen_anywhere(int backlog) {
  Listener listener;
  for (const int family : {AF_INET6, AF_INET}) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;
    sockaddr_storage address{};
    socklen_t length = 0;
    if (family == AF_INET6) {
      const int off = 0;
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      auto& six = reinterpret_cast<sockaddr_in6&>(address);
      six.sin6_family = AF_INET6;
      six.sin6_addr = in6addr_any;
      length = sizeof six;
    } else {
      auto& four = reinterpret_cast<sockaddr_in&>(address);
      four.sin_family = AF_INET;
      four.sin_addr.s_addr = htonl(INADDR_ANY);
      length = sizeof four;
    }
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd.get(), backlog) != 0)
      continue;
    length = sizeof address;
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    listener.port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
    listener.fd = std::move(fd);
    return listener;
  }
  throw Failure(Code::system, concat("cannot open a listening socket: ", std::strerror(errno), "."));
}

void wait_for(int fd, short what, Clock::time_point deadline) {
  pollfd ready{fd, what, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000)));
}

bool write_all(int fd, const void* data, std::size_t bytes, Clock::time_point deadline) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n > 0) {
      at += n;
      bytes -= static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (Clock::now() >= deadline) return false;
      wait_for(fd, POLLOUT, deadline);
    } else {
      return false;
    }
  }
  return true;
}

bool read_all(int fd, void* data, std::size_t bytes, Clock::time_point deadline) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= static_cast<std::size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (Clock::now() >= deadline) return false;
      wait_for(fd, POLLIN, deadline);
    } else {
      return false;
    }
  }
  return true;
}

void tune(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // Detects a host that vanished silently after about half a minute.
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  const int idle = 10, interval = 5, count = 4;
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

UniqueFd connect_to(const std::string& host, int port, Clock::time_point deadline, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    why = concat(host, ": ", gai_strerror(error));
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    UniqueFd fd(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;
    int error = ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      // One of several addresses may be unreachable.
      const auto until = std::min(deadline, Clock::now() + std::chrono::seconds(3));
      pollfd ready{fd.get(), POLLOUT, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      socklen_t length = sizeof error;
      if (poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left, 1))) != 1) {
        error = ETIMEDOUT;
      } else {
        getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      }
    }
    if (error == 0) return fd;
    why = concat(host, ":", port, ": ", std::strerror(error));
  }
  return {};
}

struct Contact {
  std::string host, shown;
  int port = 0;
  Word word{};
  std::vector<std::string> addresses;
};

Contact contact_of(const std::string& text, int rank) {
  std::istringstream words(text);
  Contact contact;
  std::string pid, name, word, address;
  if (!(words >> contact.host >> pid >> name >> contact.port >> word) || word.size() != 2 * word_bytes) {
    throw Failure(Code::store, concat("rank ", rank, " wrote '", text, "', which is not an address."));
  }
  contact.word = from_hex(word);
  contact.shown = concat("rank ", rank, " (pid ", pid, " on ", name, ")");
  while (words >> address) contact.addresses.push_back(address);
  return contact;
}

}  // namespace

std::shared_ptr<Mesh> connect(const Place& place, const std::string& address) {
  const auto deadline = Clock::now() + place.connect_timeout;
  const Listener listener = listen_anywhere(place.size);
  Word word;
  launch::random_bytes(word);
  std::string mine = concat(shm::host_identity(), " ", getpid(), " ");
  char name[256] = {};
  mine += gethostname(name, sizeof name - 1) == 0 && name[0] != 0 ? name : "?";
  mine += concat(" ", listener.port, " ", hex(word));
  for (const std::string& other : address.empty() ? own_addresses() : std::vector<std::string>{address}) {
    mine += " " + other;
  }
  const std::vector<std::string> texts = place.exchange("tcp", mine);
  std::vector<Contact> contacts;
  for (int r = 0; r < place.size; ++r) contacts.push_back(contact_of(texts[static_cast<std::size_t>(r)], r));
  std::vector<std::string> members;
  for (const Contact& contact : contacts) members.push_back(contact.shown);
  std::vector<UniqueFd> sockets(static_cast<std::size_t>(place.size));
  const Contact& self = contacts[static_cast<std::size_t>(place.rank)];

  for (int r = 0; r < place.rank; ++r) {
    const Contact& to = contacts[static_cast<std::size_t>(r)];
    std::vector<std::string> addresses = to.addresses;
    if (to.host == self.host) addresses.insert(addresses.begin(), {"127.0.0.1", "::1"});
    std::string why = "it published no address";
    UniqueFd fd;
    for (const std::string& at : addresses) {
      fd = connect_to(at, to.port, deadline, why);
      if (fd) break;
    }
    Hello hello{to.word, place.rank};
    if (!fd || !write_all(fd.get(), &hello, sizeof hello, deadline)) {
      throw Failure(Code::peer_lost, concat("no connection to ", to.shown, ": ", why, "."));
    }
    tune(fd.get());
    sockets[static_cast<std::size_t>(r)] = std::move(fd);
  }
  for (int missing = place.size - 1 - place.rank; missing > 0;) {
    if (Clock::now() >= deadline) {
      std::string who;
      for (int r = place.rank + 1; r < place.size; ++r) {
        if (!sockets[static_cast<std::size_t>(r)])
          who += concat(who.empty() ? "" : ", ", members[static_cast<std::size_t>(r)]);
      }
      throw Failure(Code::timeout, concat("nobody connected from ", who, "."));
    }
    wait_for(listener.fd.get(), POLLIN, deadline);
    UniqueFd fd(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) continue;
    Hello hello;
    const auto soon = std::min(deadline, Clock::now() + std::chrono::seconds(5));
    if (!read_all(fd.get(), &hello, sizeof hello, soon)) continue;
    // Reject connections without the right word.
    if (!launch::equal_constant_time(hello.word, word) || hello.rank <= place.rank || hello.rank >= place.size)
      continue;
    UniqueFd& socket = sockets[static_cast<std::size_t>(hello.rank)];
    if (socket) continue;
    tune(fd.get());
    socket = std::move(fd);
    --missing;
  }
  auto mesh = std::make_shared<Mesh>(place.rank, std::move(sockets), std::move(members));
  mesh->start();
  end_at_exit(mesh);
  return mesh;
}

}  // namespace tessera::wire::tcp
