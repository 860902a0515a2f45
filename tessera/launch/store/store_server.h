#pragma once
/// \file
/// launch/store/: the authenticated store that ranks and agents of a job use for rendezvous: protocol, server and
/// client.
/// This header: the server, a key-value store in the agent's single-threaded poll loop, for peers that know the job's
/// secret. Protocol: store_wire.h. Peers without the secret are disconnected and cannot tie up descriptors or memory
/// for long.

#include <tessera/launch/agent/unique_fd.h>
#include <tessera/launch/store/store_secret.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

struct StoreLimits {
  std::size_t key_bytes = 1024;
  std::size_t value_bytes = 64u << 20;
  std::size_t memory_bytes = 1u << 30;  ///< keys, values and buffers of connections together
  int connections = 4096;               ///< connections of peers that know the secret
  int pending = 64;  ///< connections of peers that have not proved it yet; a new one displaces the oldest
  std::chrono::milliseconds authentication{3000};  ///< time a peer has to prove the secret
};

struct StoreOptions {
  std::string address = "127.0.0.1";  ///< the one interface to listen on: an address, or a name that resolves to one
  int port = 0;                       ///< 0: any free port
  Secret secret{};                    ///< must not be all zeros
  int generation = 0;                 ///< see set_generation
  StoreLimits limits;
};

/// Since the start; for logs and tests.
struct StoreCounters {
  std::uint64_t accepted = 0;       ///< TCP connections
  std::uint64_t authenticated = 0;  ///< connections that proved the secret
  std::uint64_t refused = 0;        ///< wrong secret, garbage, other version, stale generation, too many, too slow
  std::uint64_t broken = 0;         ///< authenticated, then sent an invalid message
  std::uint64_t requests = 0;
};

/// Use: poll fd() for POLLIN with a timeout that ends at deadline(), then call turn(). Single-threaded except for
/// connect(). SIGPIPE is not raised. After fork() a long-lived child must not touch it (descriptors are close-on-exec).
class StoreServer {
 public:
  /// Starts listening. Throws InputError when the address or port is not available (naming both and the reason).
  explicit StoreServer(const StoreOptions& options);
  ~StoreServer();
  StoreServer(StoreServer&&) noexcept;
  StoreServer& operator=(StoreServer&&) noexcept;

  /// An epoll descriptor: readable when turn() has something to do.
  int fd() const;
  /// The port it listens on.
  int port() const;
  /// "address:port" as ranks need it in TESSERA_STORE.
  std::string where() const;
  /// Handles ready events for at most about 10 ms; never blocks.
  void turn();
  /// Returns the client's end of a connection that no network can cut, for StoreClientOptions::connect of a client in
  /// this process, which proves the secret like any other. The only method that another thread may call.
  UniqueFd connect();
  /// Time at which turn() is due even if fd() is not readable (a waiting peer's timeout, a slow handshake); nullopt:
  /// never.
  std::optional<std::chrono::steady_clock::time_point> deadline() const;

  /// The generation of the running ranks (+1 per restart). Ranks of an older one are refused; connected ones get an
  /// error and are closed, and the keys under their prefix (generation_prefix) are erased. The generation only grows.
  void set_generation(int generation);
  int generation() const;

  /// Direct access for the hosting process: like a client's calls, but without the network and without waiting. Keys
  /// and values must respect the limits (Error).
  void set(const std::string& key, std::string value);
  std::optional<std::string> get(const std::string& key) const;
  std::int64_t add(const std::string& key, std::int64_t delta);
  bool erase(const std::string& key);
  /// All keys that start with `prefix`, sorted.
  std::vector<std::string> list(std::string_view prefix) const;

  StoreCounters counters() const;
  /// Number of connections that have proved the secret; pending(): number of connections that have not yet.
  int connections() const;
  int pending() const;
  std::size_t memory_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The prefix of all keys that ranks of a generation use: "tessera/3/".
std::string generation_prefix(int generation);

}  // namespace tessera::launch
