#pragma once
/// \file
/// Stores, through which a world's ranks find each other: keys and values visible to all of them.

#include <tessera/launch/store/store_secret.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::wire {

/// Thread-safe unless an implementation documents otherwise. Errors are Failures with code store.
class Store {
 public:
  using milliseconds = std::chrono::milliseconds;
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits for the key; on timeout throws a Failure (timeout) that names it.
  virtual std::string get(const std::string& key, milliseconds timeout) = 0;
  /// Returns the sum; an absent key counts as 0.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
  virtual void remove(const std::string& key) = 0;
};

/// Location and credentials of an authenticated store (launch/store).
struct StorePlace {
  std::string host;
  int port = 0;
  launch::Secret secret{};
  bool serve = false;   ///< this process serves the store, unless it already does
  int generation = -1;  ///< this rank's generation, for an agent's store
  std::chrono::milliseconds timeout{300'000};
};
/// A store served by this process stays until the process ends: other ranks may still query it.
std::shared_ptr<Store> open_store(const StorePlace& place);

/// A store in a folder visible to all ranks, one file per key. Creates the folder if absent.
std::shared_ptr<Store> open_folder(const std::string& folder);

/// A store in this process's memory, for a world of one rank, or whose ranks are threads.
std::shared_ptr<Store> open_memory();

}  // namespace tessera::wire
