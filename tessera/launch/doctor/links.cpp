#include <tessera/launch/doctor/links.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <span>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/launch/store/hmac.h>
#include <tessera/launch/store/store_socket.h>

namespace tessera::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t token_bytes = 32;
constexpr std::uint64_t least_bytes = std::uint64_t{1} << 20, most_bytes = std::uint64_t{256} << 20;
constexpr int pings = 32;
constexpr milliseconds hello_patience(3000), connect_patience(10000);

/// The reason why two hosts cannot communicate. It is caught in this file and becomes Link::failure.
struct LinkFailure {
  std::string why;
};

std::int64_t wall_clock() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// A request from the caller to the callee. Both are 64-bit little-endian machines, the only supported ones.
struct Request {
  enum Kind : std::uint64_t { clock = 1, take, give, end } kind;
  std::uint64_t bytes;
};

/// A non-blocking socket; every transfer has a deadline.
class Wire {
 public:
  Wire(UniqueFd fd, milliseconds patience) : fd_(std::move(fd)), patience_(patience) {
    set_store_socket_options(fd_.get());
  }

  void set_patience(milliseconds patience) { patience_ = patience; }

  void send(const void* bytes, std::size_t count) {
    const auto deadline = Clock::now() + patience_;
    for (const char* at = static_cast<const char*>(bytes); count > 0;) {
      const ssize_t sent = ::send(fd_.get(), at, count, MSG_NOSIGNAL);
      if (sent > 0) {
        at += sent, count -= static_cast<std::size_t>(sent);
      } else if (errno == EAGAIN) {
        wait(POLLOUT, deadline);
      } else if (errno != EINTR) {
        throw LinkFailure{std::strerror(errno)};
      }
    }
  }

  void receive(void* bytes, std::size_t count) {
    const auto deadline = Clock::now() + patience_;
    for (char* at = static_cast<char*>(bytes); count > 0;) {
      const ssize_t got = ::recv(fd_.get(), at, count, 0);
      if (got > 0) {
        at += got, count -= static_cast<std::size_t>(got);
      } else if (got == 0) {
        throw LinkFailure{"the other host closed the connection"};
      } else if (errno == EAGAIN) {
        wait(POLLIN, deadline);
      } else if (errno != EINTR) {
        throw LinkFailure{std::strerror(errno)};
      }
    }
  }

  template <class T>
  void send(const T& value) {
    send(&value, sizeof value);
  }
  template <class T>
  T receive() {
    T value{};
    receive(&value, sizeof value);
    return value;
  }

  /// Sends the same buffer repeatedly; it stays in the cache, so this measures the network and not the memory.
  void send_many(std::uint64_t count) {
    for (; count > 0; count -= std::min<std::uint64_t>(count, buffer_.size()))
      send(buffer_.data(), std::min<std::uint64_t>(count, buffer_.size()));
  }
  void receive_many(std::uint64_t count) {
    for (; count > 0; count -= std::min<std::uint64_t>(count, buffer_.size()))
      receive(buffer_.data(), std::min<std::uint64_t>(count, buffer_.size()));
  }

 private:
  void wait(short events, Clock::time_point deadline) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd fd{fd_.get(), events, 0};
    if (left <= 0 || poll(&fd, 1, static_cast<int>(std::min<std::int64_t>(left, 1 << 30))) == 0)
      throw LinkFailure{
          concat("no byte arrived for ", std::chrono::duration_cast<std::chrono::seconds>(patience_).count(), " s")};
  }

  UniqueFd fd_;
  milliseconds patience_;
  std::vector<char> buffer_ = std::vector<char>(std::size_t{128} << 10, 'x');
};

struct Hello {
  std::array<char, token_bytes> token;
  std::int64_t place;
};

/// Serves the callers of this host, one per round.
class Callee {
 public:
  Callee(const LinkOptions& options, UniqueFd listener, const std::array<char, token_bytes>& token)
      : options_(options), listener_(std::move(listener)), token_(token) {}

  /// Waits for the host at `place` and handles its requests until it is done. The caller reports failures.
  void serve(int place) {
    try {
      Wire wire = await(place);
      wire.send('r');
      for (;;) {
        const auto request = wire.receive<Request>();
        if (request.kind == Request::end || request.bytes > most_bytes) return;
        if (request.kind == Request::clock) wire.send(options_.now());
        if (request.kind == Request::give) wire.send_many(request.bytes);
        if (request.kind == Request::take) {
          wire.receive_many(request.bytes);
          wire.send('d');
        }
      }
    } catch (const LinkFailure&) {
    }
  }

 private:
  /// Callers of later rounds may arrive first; their connections are kept until it is their turn.
  Wire await(int place) {
    const auto deadline = Clock::now() + options_.patience;
    for (;;) {
      if (const auto found = waiting_.find(place); found != waiting_.end()) {
        Wire wire = std::move(found->second);
        waiting_.erase(found);
        return wire;
      }
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      pollfd fd{listener_.get(), POLLIN, 0};
      if (left <= 0 || poll(&fd, 1, static_cast<int>(left)) == 0) throw LinkFailure{"it did not call"};
      UniqueFd accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!accepted) continue;
      try {
        Wire wire(std::move(accepted), hello_patience);
        const auto hello = wire.receive<Hello>();
        const bool ours = equal_constant_time(bytes_of(hello.token), bytes_of(token_)) && hello.place > options_.host &&
                          hello.place < options_.hosts;
        if (!ours) continue;  // a stranger: closed without an answer
        wire.set_patience(options_.patience);
        waiting_.insert_or_assign(static_cast<int>(hello.place), std::move(wire));
      } catch (const LinkFailure&) {  // it sent nothing
      }
    }
  }

  static std::span<const std::uint8_t> bytes_of(const std::array<char, token_bytes>& token) {
    return {reinterpret_cast<const std::uint8_t*>(token.data()), token.size()};
  }

  const LinkOptions& options_;
  UniqueFd listener_;
  std::array<char, token_bytes> token_;
  std::map<int, Wire> waiting_;
};

/// Duration of a request in seconds, from its first byte to the last byte of the answer.
double seconds_of(Wire& wire, Request::Kind kind, std::uint64_t bytes) {
  const std::int64_t begin = monotonic_ns();
  wire.send(Request{kind, bytes});
  if (kind == Request::take) {
    wire.send_many(bytes);
    wire.receive<char>();
  } else {
    wire.receive_many(bytes);
  }
  return seconds_since(begin);
}

/// Bytes per second in one direction; a first MiB determines how many bytes to send.
double rate(Wire& wire, Request::Kind kind, double round_trip, double seconds) {
  const double first = std::max(seconds_of(wire, kind, least_bytes) - round_trip, 1e-6);
  const double wanted = seconds / first * static_cast<double>(least_bytes);
  const auto bytes =
      static_cast<std::uint64_t>(std::clamp(wanted, static_cast<double>(least_bytes), static_cast<double>(most_bytes)));
  return static_cast<double>(bytes) / std::max(seconds_of(wire, kind, bytes) - round_trip, 1e-6);
}

/// A host's entry for the others: "ADDRESS PORT TOKEN".
struct Place {
  std::string address;
  int port = 0;
  std::array<char, token_bytes> token{};
};

Link call(const LinkOptions& options, int to, const Place& place) {
  Link link;
  link.from = options.host;
  link.to = to;
  try {
    std::string why;
    UniqueFd fd =
        connect_to(place.address, place.port, Clock::now() + std::min(connect_patience, options.patience), why);
    if (!fd) throw LinkFailure{concat("cannot connect to ", place.address, ":", place.port, ": ", why)};
    Wire wire(std::move(fd), options.patience);
    wire.send(Hello{place.token, options.host});
    wire.receive<char>();  // wait for our turn
    link.round_trip = std::numeric_limits<double>::max();
    for (int ping = 0; ping < pings; ++ping) {
      const std::int64_t begin = monotonic_ns(), before = options.now();
      wire.send(Request{Request::clock, 0});
      const auto theirs = wire.receive<std::int64_t>();
      const double taken = seconds_since(begin);
      if (taken >= link.round_trip) continue;
      // The fastest answer is the most precise: it was made half a round trip ago, give or take that half (Cristian
      // 1989, Probabilistic clock synchronization).
      link.round_trip = taken;
      link.clock_within = taken / 2;
      link.clock_ahead = static_cast<double>(theirs - before) * 1e-9 - taken / 2;
    }
    link.there = rate(wire, Request::take, link.round_trip, options.seconds);
    link.back = rate(wire, Request::give, link.round_trip, options.seconds);
    wire.send(Request{Request::end, 0});
  } catch (const LinkFailure& failure) {
    link.failure = failure.why;
  }
  return link;
}

std::string text_of(const std::vector<Link>& links) {
  std::vector<Value> list;
  for (const Link& link : links)
    list.push_back(Value::make_object({{"to", Value::of(link.to)},
                                       {"failure", Value::of(link.failure)},
                                       {"round_trip", Value::of(link.round_trip)},
                                       {"there", Value::of(link.there)},
                                       {"back", Value::of(link.back)},
                                       {"clock_ahead", Value::of(link.clock_ahead)},
                                       {"clock_within", Value::of(link.clock_within)}}));
  return dump_json(Value::make_array(std::move(list)), -1);
}

std::vector<Link> links_from(const std::string& text, int from) {
  std::vector<Link> links;
  const Value parsed = parse_json(text, concat("the links of host ", from));
  for (const Value& item : parsed.items())
    links.push_back({from, static_cast<int>(item.at("to").as_int()), item.at("failure").as_string(),
                     item.at("round_trip").as_real(), item.at("there").as_real(), item.at("back").as_real(),
                     item.at("clock_ahead").as_real(), item.at("clock_within").as_real()});
  return links;
}

/// The entries of all hosts, in host order; a host publishes its entry once it is listening.
std::vector<Place> exchange_places(StoreClient& store, const LinkOptions& options, const Place& own) {
  const auto key = [&](int host) { return concat(options.key_prefix, "place/", host); };
  store.multi_set({key(options.host)},
                  {concat(own.address, " ", own.port, " ") + std::string(own.token.begin(), own.token.end())});
  std::vector<std::string> keys;
  for (int host = 0; host < options.hosts; ++host) keys.push_back(key(host));
  std::vector<Place> places;
  for (const std::string& text : store.multi_get(keys, options.patience)) {
    const std::size_t first = text.find(' '), second = text.find(' ', first + 1);
    const auto port = second == std::string::npos
                          ? std::nullopt
                          : parse_int(std::string_view(text).substr(first + 1, second - first - 1));
    TESSERA_CHECK(port.has_value() && text.size() == second + 1 + token_bytes,
                  "a host's entry in the store is damaged: ", keys[places.size()]);
    Place place{text.substr(0, first), static_cast<int>(*port), {}};
    std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(second) + 1, token_bytes, place.token.begin());
    places.push_back(std::move(place));
  }
  return places;
}

}  // namespace

int rounds_of_pairs(int hosts) { return hosts < 2 ? 0 : hosts - 1 + hosts % 2; }

std::optional<int> partner(int round, int host, int hosts) {
  // Host n-1 is fixed and the others rotate: in round r those hosts meet whose indices add up to r, counted around the
  // circle. With an odd number of hosts, the one that would meet the fixed host pauses.
  const int circle = rounds_of_pairs(hosts);
  const int staying = circle;
  int other = 0;
  if (host == staying) {
    // Its partner is the host that would meet itself: 2 x place = round.
    other = round % 2 == 0 ? round / 2 : (round + circle) / 2;
  } else {
    other = (round - host % circle + circle) % circle;
    if (other == host) other = staying;
  }
  return other < hosts ? std::optional(other) : std::nullopt;
}

LinkTable measure_links(StoreClient& store, const LinkOptions& given) {
  LinkOptions options = given;
  if (!options.now) options.now = wall_clock;
  Place own;
  own.address = options.address;
  random_bytes({reinterpret_cast<std::uint8_t*>(own.token.data()), own.token.size()});
  UniqueFd listener = listen_on(options.address, 0, own.port);
  const std::vector<Place> places = exchange_places(store, options, own);
  Callee callee(options, std::move(listener), own.token);

  LinkTable table;
  table.rounds_for_all = rounds_of_pairs(options.hosts);
  table.rounds = std::min(table.rounds_for_all, options.most_rounds);
  std::vector<Link> called;
  for (int turn = 0; turn < table.rounds; ++turn) {
    const auto round = static_cast<int>(std::int64_t{turn} * table.rounds_for_all / table.rounds);
    const auto other = partner(round, options.host, options.hosts);
    if (!other) continue;
    if (*other < options.host) {
      called.push_back(call(options, *other, places[static_cast<std::size_t>(*other)]));
    } else {
      callee.serve(*other);
    }
  }

  const auto key = [&](int host) { return concat(options.key_prefix, "links/", host); };
  store.set(key(options.host), text_of(called));
  std::vector<std::string> keys;
  for (int host = 0; host < options.hosts; ++host) keys.push_back(key(host));
  const std::vector<std::string> texts = store.multi_get(keys, options.patience * (2 * table.rounds + 1));
  for (int host = 0; host < options.hosts; ++host) {
    auto links = links_from(texts[static_cast<std::size_t>(host)], host);
    std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) { return a.to < b.to; });
    table.links.insert(table.links.end(), links.begin(), links.end());
  }
  return table;
}

std::string address_towards(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int failure = getaddrinfo(host.c_str(), "9", &hints, &found);
  if (failure != 0) throw Error(concat("the name '", host, "' has no address: ", gai_strerror(failure)));
  std::string result;
  for (const addrinfo* address = found; address != nullptr && result.empty(); address = address->ai_next) {
    // Connecting a datagram socket sends nothing; the kernel only chooses the route.
    const UniqueFd fd(socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    if (fd && connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        getnameinfo(reinterpret_cast<const sockaddr*>(&own), length, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0)
      result = text.data();
  }
  freeaddrinfo(found);
  if (result.empty()) throw Error(concat("no route from this host to '", host, "'"));
  return result;
}

std::vector<std::optional<ClockAhead>> clocks_ahead(const LinkTable& table, int hosts) {
  std::vector<std::optional<ClockAhead>> clocks(static_cast<std::size_t>(hosts));
  std::vector<bool> settled(clocks.size());
  if (hosts > 0) clocks[0] = ClockAhead{};
  std::vector<std::vector<const Link*>> of_host(clocks.size());
  for (const Link& link : table.links) {
    if (!link.failure.empty()) continue;
    of_host[static_cast<std::size_t>(link.from)].push_back(&link);
    of_host[static_cast<std::size_t>(link.to)].push_back(&link);
  }
  for (;;) {  // Dijkstra: along a chain of links the maximum errors add up
    std::size_t next = clocks.size();
    for (std::size_t host = 0; host < clocks.size(); ++host)
      if (!settled[host] && clocks[host] && (next == clocks.size() || clocks[host]->within < clocks[next]->within))
        next = host;
    if (next == clocks.size()) return clocks;
    settled[next] = true;
    for (const Link* link : of_host[next]) {
      const bool forward = static_cast<std::size_t>(link->from) == next;
      auto& other = clocks[static_cast<std::size_t>(forward ? link->to : link->from)];
      const double within = clocks[next]->within + link->clock_within;
      if (!other || within < other->within)
        other = ClockAhead{clocks[next]->seconds + (forward ? link->clock_ahead : -link->clock_ahead), within};
    }
  }
}

}  // namespace tessera::launch
