#pragma once
/// \file
/// Where the ranks of a world meet: keys and values that all of them see.

#include <tessera/launch/store/store_secret.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::wire {

/// Thread-safe, unless an implementation says otherwise. Errors are Failures with code store.
class Store {
 public:
  using milliseconds = std::chrono::milliseconds;
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits for the key; Failure with code timeout names it.
  virtual std::string get(const std::string& key, milliseconds timeout) = 0;
  /// The sum; an absent key counts as 0.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
  virtual void remove(const std::string& key) = 0;
};

/// Where an authenticated store (launch/store) is, and how it is entered.
struct StorePlace {
  std::string host;
  int port = 0;
  launch::Secret secret{};
  bool serve = false;   ///< this process serves it, unless it does already
  int generation = -1;  ///< this rank's, for an agent's store
  std::chrono::milliseconds timeout{300'000};
};
/// A store that this process serves stays until the process ends: others may still ask it.
std::shared_ptr<Store> open_store(const StorePlace& place);

/// A folder that all ranks see; each key is a file in it. Made if absent.
std::shared_ptr<Store> open_folder(const std::string& folder);

/// In the memory of this process: for a world of one rank, or of ranks that are threads.
std::shared_ptr<Store> open_memory();

}  // namespace tessera::wire
