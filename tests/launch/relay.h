#pragma once
/// \file
/// A TCP relay between a client and a server on one host, to simulate a network that can be cut. Data in transit at a
/// cut is lost for good on existing connections (as when TCP's retransmission intervals keep growing); connections made
/// after the cut get through.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tessera/launch/agent/ports.h>
#include <tessera/launch/store/store_socket.h>
#include <tests/stopwatch.h>
#include <atomic>
#include <chrono>
#include <list>
#include <string>
#include <thread>
#include <vector>

namespace tessera::launch {

class Relay {
 public:
  explicit Relay(int target) : target_(target), listener_(listen_on("127.0.0.1", 0)), thread_([this] { run(); }) {}
  ~Relay() {
    stop_ = true;
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  int port() const { return listener_.port; }
  void cut() { cut_ = true; }
  void mend() { cut_ = false; }

 private:
  struct Pair {
    UniqueFd client, server;
    bool dead = false;
  };

  /// False once one side has closed.
  static bool pass(int from, int to) {
    char buffer[1 << 14];
    const ssize_t got = ::recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    for (ssize_t done = 0; done < got;) {
      const ssize_t sent =
          ::send(to, buffer + done, static_cast<std::size_t>(got - done), MSG_NOSIGNAL);  // loopback: soon
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent > 0) done += sent;
    }
    return true;
  }

  void run() {
    std::list<Pair> pairs;
    while (!stop_) {
      if (cut_) {
        for (Pair& pair : pairs) pair.dead = true;
      }
      std::vector<pollfd> watched = {{cut_ ? -1 : listener_.fd.get(), POLLIN, 0}};
      for (const Pair& pair : pairs) {
        watched.push_back({pair.dead ? -1 : pair.client.get(), POLLIN, 0});
        watched.push_back({pair.dead ? -1 : pair.server.get(), POLLIN, 0});
      }
      ::poll(watched.data(), watched.size(), 5);
      if (cut_) continue;
      std::size_t i = 1;
      std::erase_if(pairs, [&](const Pair& pair) {
        const bool client = watched[i++].revents != 0, server = watched[i++].revents != 0;
        return (client && !pass(pair.client.get(), pair.server.get())) ||
               (server && !pass(pair.server.get(), pair.client.get()));
      });
      if (watched[0].revents == 0) continue;
      std::string why;
      Pair pair{UniqueFd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC)),
                connect_to("127.0.0.1", target_,
                           std::chrono::steady_clock::now() + testing::patience(std::chrono::milliseconds(5000)), why)};
      if (pair.client && pair.server) pairs.push_back(std::move(pair));
    }
  }

  const int target_;
  const BoundSocket listener_;
  std::atomic<bool> cut_ = false, stop_ = false;
  std::thread thread_;  // last, because it uses the other members
};

}  // namespace tessera::launch
