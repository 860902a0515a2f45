#include <tessera/launch/store/store_client.h>

#include <tessera/base/system/endpoint.h>
#include <tessera/base/text.h>
#include <tessera/launch/store/store_socket.h>
#include <tessera/launch/store/store_wire.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera::launch {

namespace {

using Clock = std::chrono::steady_clock;
using milliseconds = std::chrono::milliseconds;
using wire::Op;
using wire::Status;

constexpr milliseconds interrupt_period{100};
constexpr int handshake_attempts = 5;  // many unauthenticated clients can displace a new one

std::string seconds(milliseconds time) { return format_real(static_cast<double>(time.count()) / 1000, 4) + " s"; }

/// Why a transfer failed.
struct Broken {
  std::string why;
  bool closed_by_peer = false;
  bool interrupted = false;
};

/// One authenticated connection. Throws Broken.
class Connection {
 public:
  using Interrupted = std::function<std::optional<std::string>()>;

  Connection(UniqueFd fd, const Interrupted& interrupted) : fd_(std::move(fd)), interrupted_(interrupted) {}

  /// Authenticates both sides.
  wire::Reply greet(const StoreClientOptions& options, Clock::time_point deadline) {
    wire::Hello hello;
    hello.generation = options.generation;
    random_bytes(hello.nonce);
    const std::string bytes = wire::encode_hello(options.secret, hello);
    send(bytes, deadline);
    const auto reply = wire::read_reply(options.secret, bytes, receive(wire::reply_bytes, deadline));
    if (!reply)
      throw Broken{"the listener there does not know this job's secret: it is another program, or another job's store"};
    if (reply->status == wire::ReplyStatus::welcome) {
      in_key_ = wire::server_key(options.secret, hello.nonce, reply->nonce);
      out_key_ = wire::client_key(options.secret, hello.nonce, reply->nonce);
      const Digest proof = wire::proof(options.secret, hello.nonce, reply->nonce);
      send(wire::as_text(proof), deadline);
      in_session_ = true;
      answer_timeout_ = options.answer_timeout;
    }
    return *reply;
  }

  /// Makes close() reset the connection: after a network outage a late FIN would look to the store like the end of this
  /// process, which has another connection by then.
  void abandon() {
    const linger at_once{1, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

  /// Sets the largest payload of an answer: a tampered length must not make this process allocate more.
  void set_answer_limit(std::uint64_t bytes) { answer_limit_ = bytes; }

  void set_answer_timeout(milliseconds timeout) { answer_timeout_ = timeout; }
  void set_interruptible(bool value) { interruptible_ = value; }

  struct Answer {
    Status status;
    std::int64_t number;
    std::vector<std::string> fields;
  };
  Answer call(Op op, std::int64_t number, std::span<const std::string_view> fields, Clock::time_point deadline) {
    std::string out = wire::encode(static_cast<std::uint16_t>(op), out_sequence_++, number, fields);
    const Digest mac = Hmac(out_key_).update(out).finish();
    out.append(wire::as_text(mac));
    std::optional<Broken> unsent;
    try {
      send(out, deadline);
    } catch (const Broken& broken) {
      if (!broken.closed_by_peer) throw;
      unsent = broken;  // the store may have sent the reason before it closed
    }
    try {
      return receive_answer(deadline);
    } catch (const Broken&) {
      if (unsent) throw *unsent;
      throw;
    }
  }

 private:
  Answer receive_answer(Clock::time_point deadline) {
    std::string bytes = receive(wire::header_bytes, deadline);
    const auto header = wire::read_header(bytes);
    if (!header || header->sequence != in_sequence_++ || header->payload_bytes > answer_limit_)
      throw Broken{"an answer that is not from the store: the connection is being tampered with"};
    bytes += receive(header->payload_bytes + wire::mac_bytes, deadline);
    const std::string_view body = std::string_view(bytes).substr(0, bytes.size() - wire::mac_bytes);
    const Digest mac = Hmac(in_key_).update(body).finish();
    const auto message = wire::read_payload(*header, body.substr(wire::header_bytes));
    if (!equal_constant_time(mac, wire::as_bytes(std::string_view(bytes).substr(body.size()))) || !message) {
      throw Broken{"an answer with a wrong signature: the connection is being tampered with"};
    }
    return {static_cast<Status>(message->kind), message->number, {message->fields.begin(), message->fields.end()}};
  }

  // Large messages may take long, as long as bytes move.
  void extend(Clock::time_point& deadline) const {
    if (in_session_) deadline = std::max(deadline, Clock::now() + answer_timeout_);
  }

  // A ready socket is never interrupted, so one last look at the store remains possible after a request to stop.
  void wait_for(short events, Clock::time_point deadline) {
    const bool interruptible = interruptible_ && interrupted_;
    for (;;) {
      const auto now = Clock::now();
      if (now >= deadline) throw Broken{"it does not answer (its agent is stopped, or the network is down)"};
      auto left = std::chrono::ceil<milliseconds>(deadline - now);
      left = std::min(left, interruptible ? interrupt_period : milliseconds(60000));
      pollfd poll_fd{fd_.get(), events, 0};
      const int ready = poll(&poll_fd, 1, static_cast<int>(left.count()));
      if (ready > 0) return;
      if (ready < 0 && errno != EINTR) throw Broken{concat("poll: ", std::strerror(errno))};
      if (!interruptible) continue;
      if (auto why = interrupted_()) throw Broken{*why, false, true};
    }
  }

  void send(std::string_view bytes, Clock::time_point deadline) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
        extend(deadline);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        wait_for(POLLOUT, deadline);
      } else if (errno != EINTR) {
        throw Broken{std::strerror(errno), true};
      }
    }
  }

  std::string receive(std::size_t count, Clock::time_point deadline) {
    std::string bytes(count, 0);
    for (std::size_t got = 0; got < count;) {
      const ssize_t more = recv(fd_.get(), bytes.data() + got, count - got, MSG_DONTWAIT);
      if (more > 0) {
        got += static_cast<std::size_t>(more);
        extend(deadline);
      } else if (more == 0) {
        throw Broken{"it closed the connection", true};
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        wait_for(POLLIN, deadline);
      } else if (errno != EINTR) {
        throw Broken{std::strerror(errno), true};
      }
    }
    return bytes;
  }

  UniqueFd fd_;
  const Interrupted& interrupted_;
  bool interruptible_ = true, in_session_ = false;
  milliseconds answer_timeout_{0};  // limit for a silence
  std::uint64_t answer_limit_ = 0;
  Digest in_key_{}, out_key_{};
  std::uint64_t in_sequence_ = 0, out_sequence_ = 0;
};

std::string other_version(const wire::Reply& reply) {
  return concat("it uses version ", reply.version, " of the protocol, this process version ", wire::version,
                ": install the same tessera version on every host");
}

std::string stale(int mine, std::int64_t present) {
  return concat("this rank belongs to generation ", mine, " of the job, which has been restarted and is at generation ",
                present, ": it must end");
}

}  // namespace

struct StoreClient::Impl {
  StoreClientOptions options;
  pid_t owner = getpid();
  std::atomic<std::uint64_t> message_limit = 0;
  std::mutex mutex;
  std::vector<std::unique_ptr<Connection>> idle;  // under mutex
  std::string lost;                               // the reason, once the store is lost; under mutex
  bool nobody_listens = false;                    // whether the generation was the reason; under mutex

  explicit Impl(StoreClientOptions o) : options(std::move(o)) {}

  std::string where() const { return endpoint_text(options.host, options.port); }

  [[noreturn]] void lose(const std::string& why, bool refused = false) {
    const std::lock_guard lock(mutex);
    if (lost.empty()) {
      lost = concat("the rendezvous store at ", where(), " is lost: ", why);
      nobody_listens = refused;
    }
    idle.clear();
    throw StoreLost(lost, nobody_listens);
  }

  // Tries until connected and authenticated, or the time is up. `patient`: the store may not be running yet.
  std::unique_ptr<Connection> connect(bool patient) {
    const auto deadline = Clock::now() + options.connect_timeout;
    milliseconds pause(10);
    int closed = 0;
    for (;;) {
      std::string why;
      UniqueFd fd = options.connect ? options.connect() : connect_to(options.host, options.port, deadline, why);
      if (fd) {
        if (!options.connect) set_store_socket_options(fd.get());
        auto connection = std::make_unique<Connection>(std::move(fd), options.interrupted);
        connection->set_interruptible(patient);
        try {
          const wire::Reply reply = connection->greet(options, deadline);
          if (reply.status == wire::ReplyStatus::welcome) {
            message_limit = reply.message_limit;
            connection->set_answer_limit(2 * reply.message_limit);
            return connection;
          }
          if (reply.status == wire::ReplyStatus::other_version) lose(other_version(reply));
          if (reply.status == wire::ReplyStatus::stale_generation) lose(stale(options.generation, reply.generation));
          lose("it has reached its maximum number of connections (StoreLimits::connections)");
        } catch (const Broken& broken) {
          if (!broken.closed_by_peer) lose(broken.why);
          if (++closed >= handshake_attempts) {
            lose(concat(broken.why, " during the handshake, ", closed,
                        " times: this process does not have that job's secret ",
                        "(TESSERA_SECRET_FD), or another program listens there"));
          }
        }
      } else if (!patient || Clock::now() + pause >= deadline) {
        lose(concat("it could not be reached", patient ? concat(" within ", seconds(options.connect_timeout)) : "",
                    ": ", why, ". Its agent must be running there; check the address and firewalls"),
             why == std::strerror(ECONNREFUSED));
      }
      if (patient && options.interrupted) {
        if (const auto reason = options.interrupted()) lose(*reason);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(200));
    }
  }

  std::unique_ptr<Connection> take() {
    if (getpid() != owner) {
      throw StoreLost(concat("the rendezvous store at ", where(), ": this connection belongs to process ", owner,
                             "; a child made by fork() needs its own StoreClient"));
    }
    {
      const std::lock_guard lock(mutex);
      if (!lost.empty()) throw StoreLost(lost, nobody_listens);
      if (!idle.empty()) {
        auto connection = std::move(idle.back());
        idle.pop_back();
        return connection;
      }
    }
    return connect(false);
  }

  Connection::Answer call(Op op, std::int64_t number, std::initializer_list<std::string_view> fields) {
    return call(op, number, std::span(fields.begin(), fields.size()));
  }

  Connection::Answer call(Op op, std::int64_t number, std::span<const std::string_view> fields) {
    std::uint64_t payload = 0;
    for (const std::string_view field : fields) payload += 4 + field.size();
    if (payload > message_limit) {
      throw Error(concat("a request of ", payload, " bytes; the rendezvous store at ", where(), " accepts at most ",
                         message_limit));
    }
    auto connection = take();
    const bool timed = op == Op::get || op == Op::wait;
    const auto begin = Clock::now();
    // A wait without a limit ends at the largest time that the clock can represent.
    const auto deadline =
        !timed       ? begin + options.answer_timeout
        : number < 0 ? Clock::time_point::max()
                     : begin + milliseconds(std::min<std::int64_t>(number, 1ll << 40)) + options.answer_timeout;
    connection->set_interruptible(timed);
    Connection::Answer answer;
    try {
      answer = connection->call(op, number, fields, deadline);
    } catch (const Broken& broken) {
      if (!broken.closed_by_peer) connection->abandon();
      if (broken.interrupted) throw StoreLost(broken.why);  // this connection still waits for its answer: drop it
      lose(broken.closed_by_peer ? concat(broken.why, " (its agent has ended, or restarts the ranks)") : broken.why);
    }
    if (answer.status == Status::stale) lose(stale(options.generation, answer.number));
    {
      const std::lock_guard lock(mutex);
      idle.push_back(std::move(connection));
    }
    if (answer.status == Status::ok || answer.status == Status::timeout) return answer;
    throw Error(concat("the rendezvous store at ", where(), " refuses: ",
                       answer.fields.empty() ? concat("status ", static_cast<int>(answer.status)) : answer.fields[0]));
  }

  [[noreturn]] void timed_out(const std::vector<std::string>& missing, milliseconds timeout) const {
    throw StoreTimeout(concat("nobody set ", missing.size() == 1 ? "key " : "keys ", join(missing),
                              " in the rendezvous store at ", where(), " within ", seconds(timeout)));
  }
};

namespace {

std::vector<std::string_view> views(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

std::int64_t wire_timeout(milliseconds timeout) {
  return timeout.count() < 0 ? wire::no_timeout : static_cast<std::int64_t>(timeout.count());
}

}  // namespace

StoreClient::StoreClient(StoreClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->idle.push_back(impl_->connect(true));
}
StoreClient::~StoreClient() = default;
StoreClient::StoreClient(StoreClient&&) noexcept = default;
StoreClient& StoreClient::operator=(StoreClient&&) noexcept = default;

void StoreClient::set(const std::string& key, const std::string& value) { impl_->call(Op::set, 0, {key, value}); }

std::string StoreClient::get(const std::string& key, milliseconds timeout) {
  auto answer = impl_->call(Op::get, wire_timeout(timeout), {key});
  if (answer.status == Status::timeout) impl_->timed_out({key}, timeout);
  return std::move(answer.fields.at(0));
}

std::optional<std::string> StoreClient::find(const std::string& key) {
  auto answer = impl_->call(Op::get, 0, {key});
  if (answer.status == Status::timeout) return std::nullopt;
  return std::move(answer.fields.at(0));
}

void StoreClient::wait(const std::vector<std::string>& keys, milliseconds timeout) {
  if (keys.empty()) return;
  const auto answer = impl_->call(Op::wait, wire_timeout(timeout), views(keys));
  if (answer.status == Status::timeout) impl_->timed_out(answer.fields, timeout);
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  return keys.empty() || impl_->call(Op::check, 0, views(keys)).number != 0;
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t delta) {
  return impl_->call(Op::add, delta, {key}).number;
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
  return std::move(impl_->call(Op::compare_set, 0, {key, expected, desired}).fields.at(0));
}

bool StoreClient::erase(const std::string& key) { return impl_->call(Op::erase, 0, {key}).number != 0; }

std::int64_t StoreClient::num_keys() { return impl_->call(Op::num_keys, 0, {}).number; }

void StoreClient::append(const std::string& key, const std::string& value) { impl_->call(Op::append, 0, {key, value}); }

std::vector<std::string> StoreClient::multi_get(const std::vector<std::string>& keys, milliseconds timeout) {
  if (keys.empty()) return {};
  auto answer = impl_->call(Op::get, wire_timeout(timeout), views(keys));
  if (answer.status == Status::timeout) impl_->timed_out(answer.fields, timeout);
  return std::move(answer.fields);
}

void StoreClient::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  TESSERA_CHECK(keys.size() == values.size(), "multi_set of ", keys.size(), " keys and ", values.size(), " values");
  if (keys.empty()) return;
  std::vector<std::string_view> fields;
  for (std::size_t i = 0; i < keys.size(); ++i) fields.insert(fields.end(), {keys[i], values[i]});
  impl_->call(Op::multi_set, 0, fields);
}

void StoreClient::set_answer_timeout(milliseconds timeout) {
  const std::lock_guard lock(impl_->mutex);
  impl_->options.answer_timeout = timeout;
  for (const auto& connection : impl_->idle) connection->set_answer_timeout(timeout);
}

void StoreClient::set_will(const std::string& key, const std::string& value) { impl_->call(Op::will, 0, {key, value}); }

std::vector<std::string> StoreClient::list(const std::string& prefix) {
  return std::move(impl_->call(Op::list, 0, {prefix}).fields);
}

std::string StoreClient::where() const { return impl_->where(); }
const StoreClientOptions& StoreClient::options() const { return impl_->options; }

}  // namespace tessera::launch
