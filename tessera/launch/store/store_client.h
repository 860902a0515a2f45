#pragma once
/// \file
/// Client of the rendezvous store (store_server.h): blocking calls with timeouts.

#include <tessera/base/error.h>
#include <tessera/launch/agent/unique_fd.h>
#include <tessera/launch/store/store_secret.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// The store is unreachable, or it and the client do not trust each other. The text names host:port and the reason.
class StoreLost : public Error {
 public:
  /// `why` names host:port and the reason.
  explicit StoreLost(const std::string& why, bool nobody_listens = false)
      : Error(why), nobody_listens(nobody_listens) {}
  /// The host is up and refuses connections: the store's agent has exited.
  const bool nobody_listens;
};
/// A wait timed out; the store is healthy.
class StoreTimeout : public Error {
 public:
  using Error::Error;
};

struct StoreClientOptions {
  std::string host;
  int port = 0;
  Secret secret{};
  std::function<UniqueFd()> connect;  ///< makes a connection (StoreServer::connect); empty: by TCP to host:port
  int generation = -1;                ///< generation of this rank; -1: an agent, which belongs to all generations
  std::chrono::milliseconds connect_timeout{
      30000};  ///< how long refused connections are retried, because the store may start late
  std::chrono::milliseconds answer_timeout{30000};  ///< seconds added to a call's own timeout; after that the store's
                                                    ///< agent counts as lost
  /// Polled about every 100 ms by calls that wait for a key: a returned text ends the call with StoreLost(text); the
  /// client stays usable. Meant for the agent's stop flag. Runs on the threads that call the client.
  std::function<std::optional<std::string>()> interrupted;
};

/// Thread-safe: each call uses its own connection, which is kept for later calls; a waiting call does not block others.
/// A broken connection is never replaced silently: every later call throws StoreLost with the first reason. Not usable
/// in a child after fork() (throws).
class StoreClient {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// Connects and authenticates both ways. Throws StoreLost: unreachable, wrong secret, other version, old generation.
  explicit StoreClient(StoreClientOptions options);
  ~StoreClient();
  StoreClient(StoreClient&&) noexcept;
  StoreClient& operator=(StoreClient&&) noexcept;

  void set(const std::string& key, const std::string& value);
  /// Waits for the key. StoreTimeout names it.
  std::string get(const std::string& key, milliseconds timeout);
  /// Returns the current value, or nullopt, in one round trip.
  std::optional<std::string> find(const std::string& key);
  /// Waits until all keys exist. StoreTimeout names the missing ones.
  void wait(const std::vector<std::string>& keys, milliseconds timeout);
  bool check(const std::vector<std::string>& keys);
  /// Returns the sum (an absent key counts as 0), which is stored as decimal text. Error when the current value is not
  /// a number.
  std::int64_t add(const std::string& key, std::int64_t delta);
  /// Sets `desired` when the value is `expected`, or when the key is absent and `expected` empty. Returns the value
  /// afterwards; `expected` when the key is absent and was not set.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  bool erase(const std::string& key);
  std::int64_t num_keys();
  void append(const std::string& key, const std::string& value);
  /// Waits for all keys.
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, milliseconds timeout);
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);
  /// Registers a will: `key` is set to `value` when this process closes the call's connection or dies, but not when the
  /// network fails. An empty key revokes it. Only for a client that makes one call at a time.
  void set_will(const std::string& key, const std::string& value);
  /// Replaces StoreClientOptions::answer_timeout for later calls. Only for a client that makes one call at a time.
  void set_answer_timeout(milliseconds timeout);
  /// Keys that start with `prefix`, sorted.
  std::vector<std::string> list(const std::string& prefix);

  /// "host:port".
  std::string where() const;
  const StoreClientOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::launch
