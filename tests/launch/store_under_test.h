#pragma once
/// \file
/// A StoreServer in its own thread, driven as an agent drives it, and a raw socket for clients that break the rules.

#include <tessera/launch/store/store_client.h>
#include <tessera/launch/store/store_server.h>
#include <tessera/launch/store/store_socket.h>
#include <tests/stopwatch.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::launch {

class StoreUnderTest {
 public:
  explicit StoreUnderTest(StoreLimits limits = {}, int generation = 0) : secret_(make_secret()) {
    StoreOptions options;
    options.secret = secret_;
    options.limits = limits;
    options.generation = generation;
    server_.emplace(options);
    port_ = server_->port();
    wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    thread_ = std::thread([this] { run(); });
  }
  ~StoreUnderTest() { stop(); }

  /// Stops the server and closes its connections.
  void stop() {
    if (!thread_.joinable()) return;
    stop_ = true;
    wake();
    thread_.join();
    server_.reset();
  }

  /// Runs `f(server)` in the server's thread and returns its result.
  template <class F>
  auto with(F f) {
    using Result = decltype(f(*server_));
    std::packaged_task<Result()> task([&] { return f(*server_); });
    auto result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      task_ = [&] { task(); };
    }
    wake();
    return result.get();
  }

  const Secret& secret() const { return secret_; }
  int port() const { return port_; }
  StoreClientOptions client_options(int generation = -1) const {
    StoreClientOptions options;
    options.host = "127.0.0.1";
    options.port = port_;
    options.secret = secret_;
    options.generation = generation;
    options.connect_timeout = testing::patience(std::chrono::milliseconds(10000));
    return options;
  }
  StoreClient client(int generation = -1) const { return StoreClient(client_options(generation)); }
  StoreCounters counters() {
    return with([](StoreServer& server) { return server.counters(); });
  }

 private:
  void wake() {
    const std::uint64_t one = 1;
    if (write(wake_.get(), &one, sizeof one) != sizeof one) std::abort();
  }

  void run() {
    while (!stop_) {
      const auto deadline = server_->deadline();
      int timeout = -1;
      if (deadline) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
        timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
      }
      pollfd fds[] = {{server_->fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
      poll(fds, 2, timeout);
      server_->turn();
      if (fds[1].revents != 0) {
        std::uint64_t count = 0;
        if (read(wake_.get(), &count, sizeof count) != sizeof count) continue;
        std::function<void()> task;
        {
          const std::lock_guard lock(mutex_);
          task.swap(task_);
        }
        if (task) task();
      }
    }
  }

  Secret secret_;
  std::optional<StoreServer> server_;
  int port_ = 0;
  UniqueFd wake_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::function<void()> task_;
  std::thread thread_;
};

/// A connection of a client that need not follow the protocol.
class RawPeer {
 public:
  /// Timeout for answers that are expected at once.
  static std::chrono::milliseconds usual() { return testing::patience(std::chrono::milliseconds(20000)); }

  explicit RawPeer(int port) {
    std::string why;
    fd_ = connect_to("127.0.0.1", port, std::chrono::steady_clock::now() + usual(), why);
    if (!fd_) throw Error(concat("RawPeer: ", why));
  }
  /// False when the other side has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent < 0 && !ready(POLLOUT)) return false;
    }
    return true;
  }
  /// Up to `count` received bytes: fewer when the other side closes or sends nothing for `quiet`.
  std::string receive(std::size_t count, std::chrono::milliseconds quiet = usual()) {
    std::string bytes;
    while (bytes.size() < count && ready(POLLIN, quiet)) {
      char buffer[4096];
      const ssize_t got = recv(fd_.get(), buffer, std::min(sizeof buffer, count - bytes.size()), MSG_DONTWAIT);
      if (got <= 0) break;
      bytes.append(buffer, static_cast<std::size_t>(got));
    }
    return bytes;
  }
  /// True when the other side closes within `time` without sending anything else.
  bool closed_silently(std::chrono::milliseconds time = usual()) {
    char byte;
    return ready(POLLIN, time) && recv(fd_.get(), &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN;
  }

 private:
  bool ready(short events, std::chrono::milliseconds time = usual()) {
    pollfd fd{fd_.get(), events, 0};
    return poll(&fd, 1, static_cast<int>(time.count())) > 0;
  }
  UniqueFd fd_;
};

}  // namespace tessera::launch
