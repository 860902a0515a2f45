#include <tessera/launch/store/store_server.h>

#include <tessera/base/error.h>
#include <tessera/base/system/endpoint.h>
#include <tessera/launch/store/store_connection.h>
#include <tessera/launch/store/store_socket.h>
#include <tessera/launch/store/store_table.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace tessera::launch {

namespace {

using Clock = std::chrono::steady_clock;
using Stage = StoreConnection::Stage;
using wire::Status;

constexpr std::size_t bytes_per_turn = 256 << 10;  // bytes per connection, in each direction
constexpr int accepts_per_turn = 32;               // fewer than `pending`: a peer that sent its hello is served before
                                                   // it can be displaced
constexpr std::size_t remembered_hellos = 16384;   // number of recent nonces that are refused if repeated
constexpr std::chrono::milliseconds turn_budget{10};   // maximum time before the agent does other work
constexpr std::chrono::milliseconds accept_pause{50};  // pause when the process has no descriptors left
constexpr std::uint64_t listener_id = 0, inside_id = 1;

}  // namespace

std::string generation_prefix(int generation) { return concat("tessera/", generation, "/"); }

struct StoreServer::Impl {
  struct Peer {
    Peer(UniqueFd fd, std::uint64_t number) : connection(std::move(fd)), id(number) {}

    StoreConnection connection;
    std::uint64_t id;
    std::int32_t generation = -1;
    std::optional<Clock::time_point> deadline;
    std::string waits_for;  // the key that a parked request waits for next; the request's bytes stay in the connection
    bool parked = false;
    bool closing = false;              // closed once everything is sent
    std::string will_key, will_value;  // set when the peer leaves; empty key: not set
    std::uint32_t events = 0;
    std::size_t counted = 0;                   // bytes of its buffers that Impl::buffered includes
    std::list<std::uint64_t>::iterator place;  // in strangers or greeters, until authentication
  };

  StoreOptions options;
  StoreTable table;
  int port = 0;
  UniqueFd listener, epoll;
  std::mutex inside_mutex;
  std::vector<UniqueFd> inside;  // local connections that turn() has not accepted yet; under inside_mutex
  UniqueFd inside_knock;         // readable while `inside` is not empty
  std::uint64_t next_id = inside_id + 1;
  std::unordered_map<std::uint64_t, Peer> peers;
  std::list<std::uint64_t> strangers, greeters;  // unauthenticated, oldest first: without and with a valid hello
  std::set<std::pair<Clock::time_point, std::uint64_t>> deadlines;
  std::map<std::string, std::set<std::uint64_t>, std::less<>> waiters;
  std::unordered_set<std::string> hellos;  // nonces of the last hellos
  std::deque<std::string> hello_order;
  std::optional<Clock::time_point> accept_again;
  StoreCounters counters;
  std::size_t buffered = 0;

  explicit Impl(const StoreOptions& o)
      : options(o), table({o.limits.key_bytes, o.limits.value_bytes, o.limits.memory_bytes}) {
    if (std::all_of(options.secret.begin(), options.secret.end(), [](std::uint8_t byte) { return byte == 0; })) {
      throw InputError("the rendezvous store needs a secret, but all its bytes are zero (use make_secret)");
    }
    const std::size_t largest = std::numeric_limits<std::uint32_t>::max() / 2;
    if (options.limits.value_bytes > largest || options.limits.pending < 1 || options.limits.connections < 1) {
      throw InputError(concat("limits of the rendezvous store: values may have at most ", largest,
                              " bytes, and at least one ", "connection and one pending connection must be allowed"));
    }
    listener = listen_on(options.address, options.port, port);
    epoll = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll) throw Error(concat("epoll_create1 for the rendezvous store: ", std::strerror(errno)));
    listen_events(EPOLL_CTL_ADD, EPOLLIN);
    inside_knock = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = inside_id;
    if (!inside_knock || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, inside_knock.get(), &event) != 0) {
      throw Error(concat("eventfd for the rendezvous store: ", std::strerror(errno)));
    }
  }

  std::size_t message_limit() const { return options.limits.value_bytes + (1u << 20); }

  void listen_events(int operation, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = listener_id;
    if (epoll_ctl(epoll.get(), operation, listener.get(), &event) != 0) {
      throw Error(concat("epoll_ctl for the rendezvous store: ", std::strerror(errno)));
    }
  }

  void count_memory(Peer& peer) {
    buffered += peer.connection.buffered() - peer.counted;
    peer.counted = peer.connection.buffered();
  }

  /// Registers the epoll events for the peer's state.
  void watch(Peer& peer) {
    count_memory(peer);
    const bool reading = !peer.parked && !peer.closing && !peer.connection.sending();
    const std::uint32_t events = EPOLLRDHUP | (reading ? EPOLLIN : 0u) | (peer.connection.sending() ? EPOLLOUT : 0u);
    if (events == peer.events) return;
    epoll_event event{};
    event.events = events;
    event.data.u64 = peer.id;
    epoll_ctl(epoll.get(), peer.events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, peer.connection.fd(), &event);
    peer.events = events;
  }

  void set_deadline(Peer& peer, std::optional<Clock::time_point> deadline) {
    if (peer.deadline) deadlines.erase({*peer.deadline, peer.id});
    peer.deadline = deadline;
    if (deadline) deadlines.emplace(*deadline, peer.id);
  }

  void unpark(Peer& peer) {
    if (!peer.parked) return;
    peer.parked = false;
    set_deadline(peer, std::nullopt);
    const auto found = waiters.find(peer.waits_for);
    if (found != waiters.end()) {
      found->second.erase(peer.id);
      if (found->second.empty()) waiters.erase(found);
    }
  }

  void park(Peer& peer, const std::string& key) {
    peer.parked = true;
    peer.waits_for = key;
    waiters[key].insert(peer.id);
  }

  void forget_place(Peer& peer) {
    if (peer.connection.stage() == Stage::hello) strangers.erase(peer.place);
    if (peer.connection.stage() == Stage::proof) greeters.erase(peer.place);
  }

  void close(std::uint64_t id) {
    const auto found = peers.find(id);
    if (found == peers.end()) return;
    Peer& peer = found->second;
    unpark(peer);
    set_deadline(peer, std::nullopt);
    forget_place(peer);
    buffered -= peer.counted;
    peers.erase(found);
  }

  /// The connection ended, but we did not close it.
  void end(Peer& peer) {
    const bool has_will = !peer.will_key.empty() && peer.connection.left_by_peer();
    const std::string key = peer.will_key, value = peer.will_value;
    close(peer.id);
    if (!has_will) return;
    const StoreAnswer answer =
        table.handle({static_cast<std::uint16_t>(wire::Op::set), 0, {std::string_view(key), value}}, buffered);
    wake(answer.touched);
  }

  void refuse(std::uint64_t id) {
    ++counters.refused;
    close(id);
  }

  int unauthenticated() const { return static_cast<int>(strangers.size() + greeters.size()); }

  /// Makes room for one more: displaces the oldest peer without a valid hello, or else the oldest peer with one.
  void make_room() {
    if (unauthenticated() < options.limits.pending) return;
    refuse(strangers.empty() ? greeters.front() : strangers.front());
  }

  void accept_some(Clock::time_point now) {
    for (int i = 0; i < accepts_per_turn; ++i) {
      UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          // When no descriptors are left, releases one, so that the loop does not spin on a listener that stays
          // readable.
          if (unauthenticated() > 0) refuse(strangers.empty() ? greeters.front() : strangers.front());
          listen_events(EPOLL_CTL_MOD, 0);
          accept_again = now + accept_pause;
        }
        return;
      }
      set_store_socket_options(fd.get());
      take_in(std::move(fd), now);
    }
  }

  void take_in(UniqueFd fd, Clock::time_point now) {
    ++counters.accepted;
    make_room();
    const std::uint64_t id = next_id++;
    Peer& peer = peers.try_emplace(id, std::move(fd), id).first->second;
    peer.place = strangers.insert(strangers.end(), id);
    set_deadline(peer, now + options.limits.authentication);
    watch(peer);
  }

  UniqueFd connect_inside() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      throw Error(concat("socketpair for the rendezvous store: ", std::strerror(errno)));
    }
    UniqueFd client(ends[0]);
    const std::lock_guard lock(inside_mutex);
    inside.emplace_back(ends[1]);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(inside_knock.get(), &one, sizeof one);
    return client;
  }

  void accept_inside(Clock::time_point now) {
    std::vector<UniqueFd> come;
    {
      const std::lock_guard lock(inside_mutex);
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(inside_knock.get(), &count, sizeof count);
      come.swap(inside);
    }
    for (UniqueFd& fd : come) take_in(std::move(fd), now);
  }

  bool remember(const wire::Nonce& nonce) {
    std::string text(wire::as_text(nonce));
    if (!hellos.insert(text).second) return false;
    hello_order.push_back(std::move(text));
    if (hello_order.size() > remembered_hellos) {
      hellos.erase(hello_order.front());
      hello_order.pop_front();
    }
    return true;
  }

  /// Answers a hello. False: close the connection.
  bool greet(Peer& peer) {
    const std::string bytes = peer.connection.handshake();
    const auto hello = wire::read_hello(options.secret, bytes);
    if (!hello || !remember(hello->nonce)) return false;  // a stranger, or a replay of an earlier hello
    wire::Reply reply;
    reply.generation = options.generation;
    reply.message_limit = message_limit();
    random_bytes(reply.nonce);
    const int sessions = static_cast<int>(peers.size()) - unauthenticated();
    if (hello->version != wire::version) {
      reply.status = wire::ReplyStatus::other_version;
    } else if (hello->generation >= 0 && hello->generation != options.generation) {
      reply.status = wire::ReplyStatus::stale_generation;
    } else if (sessions >= options.limits.connections) {
      reply.status = wire::ReplyStatus::too_many;
    }
    if (!peer.connection.send_reply(wire::encode_reply(options.secret, bytes, reply))) return false;
    if (reply.status != wire::ReplyStatus::welcome) return false;
    peer.generation = hello->generation;
    forget_place(peer);
    peer.connection.expect_proof(options.secret, hello->nonce, reply.nonce);
    peer.place = greeters.insert(greeters.end(), peer.id);
    peer.connection.finished();
    return true;
  }

  bool admit(Peer& peer) {
    if (!peer.connection.proof_is_right()) return false;
    if (peer.generation >= 0 && peer.generation != options.generation) return false;  // the job restarted in between
    forget_place(peer);
    peer.connection.begin_session();
    peer.connection.finished();
    set_deadline(peer, std::nullopt);
    ++counters.authenticated;
    return true;
  }

  /// Answers or parks the complete request of the connection. False: close the connection.
  bool serve(Peer& peer, std::vector<std::string>& touched) {
    const wire::Message request = peer.connection.take();
    StoreAnswer answer = table.handle(request, buffered);
    if (!answer.blocked_on.empty() && request.number != 0) {
      park(peer, answer.blocked_on);
      if (request.number > 0 && !peer.deadline) {
        constexpr std::int64_t longest = 1000ll * 3600 * 24 * 365;  // keeps the clock's sum in range
        set_deadline(peer, Clock::now() + std::chrono::milliseconds(std::min(request.number, longest)));
      }
      return true;
    }
    touched.insert(touched.end(), answer.touched.begin(), answer.touched.end());
    if (request.kind == static_cast<std::uint16_t>(wire::Op::will) && answer.status == Status::ok) {
      peer.will_key = request.fields[0];
      peer.will_value = request.fields[1];
    }
    return respond(peer, answer);
  }

  bool respond(Peer& peer, const StoreAnswer& answer) {
    peer.connection.answer(static_cast<std::uint16_t>(answer.status), answer.number, answer.fields);
    peer.connection.finished();
    return peer.connection.flush(bytes_per_turn);
  }

  /// Serves the requests that wait for these keys again. Answers to waits touch no keys, so this terminates.
  void wake(const std::vector<std::string>& touched) {
    for (const std::string& key : touched) {
      const auto found = waiters.find(key);
      if (found == waiters.end()) continue;
      const std::vector<std::uint64_t> ids(found->second.begin(), found->second.end());
      for (const std::uint64_t id : ids) {
        Peer& peer = peers.at(id);
        const auto deadline = peer.deadline;
        unpark(peer);
        set_deadline(peer, deadline);
        std::vector<std::string> none;
        const bool alive = serve(peer, none);
        if (!peer.parked) set_deadline(peer, std::nullopt);
        alive ? watch(peer) : close(id);
      }
    }
  }

  void read(Peer& peer) {
    const std::uint64_t id = peer.id;
    const auto progress = peer.connection.read(bytes_per_turn, message_limit());
    count_memory(peer);
    const bool session = peer.connection.stage() == Stage::session;
    switch (progress) {
      case StoreConnection::Progress::more:
        if (buffered + table.memory_bytes() <= options.limits.memory_bytes) return;
        ++counters.broken;  // the peer sends more than there is room for
        return close(id);
      case StoreConnection::Progress::ended:
        return session ? end(peer) : refuse(id);
      case StoreConnection::Progress::invalid:
        ++counters.broken;
        return close(id);
      case StoreConnection::Progress::whole:
        break;
    }
    if (!session) {
      const bool welcome = peer.connection.stage() == Stage::hello ? greet(peer) : admit(peer);
      return welcome ? watch(peer) : refuse(id);
    }
    ++counters.requests;
    std::vector<std::string> touched;
    serve(peer, touched) ? watch(peer) : end(peer);
    wake(touched);
  }

  void on_event(std::uint64_t id, std::uint32_t events) {
    const auto found = peers.find(id);
    if (found == peers.end()) return;  // closed earlier in this turn
    Peer& peer = found->second;
    const bool reading = peer.events & EPOLLIN;
    if (peer.connection.sending()) {
      if (!peer.connection.flush(bytes_per_turn) || (events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0) {
        return end(peer);
      }
      if (!peer.connection.sending() && peer.closing) return close(id);
      watch(peer);
    } else if (reading) {
      read(peer);
    } else if ((events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0) {
      end(peer);  // the peer left while its request was waiting
    }
  }

  void expire(Clock::time_point now) {
    while (!deadlines.empty() && deadlines.begin()->first <= now) {
      const std::uint64_t id = deadlines.begin()->second;
      Peer& peer = peers.at(id);
      if (!peer.parked) {
        refuse(id);  // too slow to prove the secret
        continue;
      }
      unpark(peer);
      const StoreAnswer answer = table.handle(peer.connection.take(), buffered);
      respond(peer, answer) ? watch(peer) : close(id);
    }
    if (accept_again && *accept_again <= now) {
      accept_again.reset();
      listen_events(EPOLL_CTL_MOD, EPOLLIN);
    }
  }

  void turn() {
    const auto begin = Clock::now();
    std::array<epoll_event, 128> events;
    const int count = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), 0);
    bool somebody_knocks = false, inside_knocks = false;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == listener_id) {
        somebody_knocks = true;
      } else if (event.data.u64 == inside_id) {
        inside_knocks = true;
      } else {
        on_event(event.data.u64, event.events);
      }
      if (Clock::now() - begin > turn_budget) break;  // the remaining events stay ready, at the front of epoll's queue
    }
    const auto now = Clock::now();
    if (somebody_knocks) accept_some(now);
    if (inside_knocks) accept_inside(now);
    expire(now);
  }

  void set_generation(int generation) {
    for (int old = options.generation; old < generation; ++old) table.erase_prefix(generation_prefix(old));
    options.generation = std::max(options.generation, generation);
    std::vector<std::uint64_t> stale;
    for (const auto& [id, peer] : peers) {
      if (peer.connection.stage() == Stage::session && peer.generation >= 0 && peer.generation < options.generation) {
        stale.push_back(id);
      }
    }
    for (const std::uint64_t id : stale) {
      Peer& peer = peers.at(id);
      unpark(peer);
      peer.closing = true;
      bool alive = true;
      if (!peer.connection.sending()) {
        StoreAnswer answer;
        answer.status = Status::stale;
        answer.number = options.generation;
        alive = respond(peer, answer);
      }
      alive&& peer.connection.sending() ? watch(peer) : close(id);
    }
  }

  /// A request of the hosting process itself.
  StoreAnswer local(wire::Op op, std::int64_t number, std::vector<std::string_view> fields) {
    StoreAnswer answer = table.handle({static_cast<std::uint16_t>(op), number, std::move(fields)}, buffered);
    if (answer.status != Status::ok) throw Error(concat("rendezvous store: ", answer.fields.at(0)));
    wake(answer.touched);
    return answer;
  }
};

StoreServer::StoreServer(const StoreOptions& options) : impl_(std::make_unique<Impl>(options)) {}
StoreServer::~StoreServer() = default;
StoreServer::StoreServer(StoreServer&&) noexcept = default;
StoreServer& StoreServer::operator=(StoreServer&&) noexcept = default;

int StoreServer::fd() const { return impl_->epoll.get(); }
int StoreServer::port() const { return impl_->port; }
std::string StoreServer::where() const { return endpoint_text(impl_->options.address, impl_->port); }
void StoreServer::turn() { impl_->turn(); }
UniqueFd StoreServer::connect() { return impl_->connect_inside(); }

std::optional<Clock::time_point> StoreServer::deadline() const {
  std::optional<Clock::time_point> result = impl_->accept_again;
  if (!impl_->deadlines.empty()) {
    const auto first = impl_->deadlines.begin()->first;
    result = result ? std::min(*result, first) : first;
  }
  return result;
}

void StoreServer::set_generation(int generation) { impl_->set_generation(generation); }
int StoreServer::generation() const { return impl_->options.generation; }

void StoreServer::set(const std::string& key, std::string value) { impl_->local(wire::Op::set, 0, {key, value}); }
std::optional<std::string> StoreServer::get(const std::string& key) const { return impl_->table.get(key); }
std::int64_t StoreServer::add(const std::string& key, std::int64_t delta) {
  return impl_->local(wire::Op::add, delta, {key}).number;
}
bool StoreServer::erase(const std::string& key) { return impl_->table.erase(key); }
std::vector<std::string> StoreServer::list(std::string_view prefix) const { return impl_->table.list(prefix); }

StoreCounters StoreServer::counters() const { return impl_->counters; }
int StoreServer::connections() const { return static_cast<int>(impl_->peers.size()) - impl_->unauthenticated(); }
int StoreServer::pending() const { return impl_->unauthenticated(); }
std::size_t StoreServer::memory_bytes() const { return impl_->buffered + impl_->table.memory_bytes(); }

}  // namespace tessera::launch
