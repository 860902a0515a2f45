#pragma once
/// \file
/// How the operations of one rank in one group are carried out.

#include <tessera/wire/failure.h>
#include <tessera/wire/operation.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::wire {

using Clock = std::chrono::steady_clock;

/// An operation that was started. Thread-safe.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Blocks until it has ended: true, or false at that time. Throws the Failure it ended with.
  virtual bool wait_until(Clock::time_point until) = 0;
  /// Whether it has ended; without blocking for longer than its own work takes. Throws likewise.
  virtual bool poll() = 0;
  /// recv: who sent it, once it has ended.
  virtual int source() const { return any_source; }
};

/// One thread at a time starts operations; the rest is thread-safe. A collective that fails makes the group fail on all
/// ranks.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  /// `operation.timeout` is set. Throws Failure when the group has failed or is closed.
  virtual std::shared_ptr<Pending> start(Operation operation) = 0;
  /// Makes the group fail on all ranks. The first reason stays.
  virtual void fail(const std::string& reason, Code code) = 0;
  /// Throws the Failure that an operation which starts now would end with.
  virtual void check() const = 0;
  /// Leaves the group: what has not ended fails.
  virtual void close() = 0;
  /// Whether ranks read this memory where it is, so that an all_reduce must work in place.
  virtual bool is_shared(const void* data) const { return false; }
};

/// What a transport needs to know of its group.
struct Place {
  std::string name;
  int rank = 0, size = 1;
  int world_rank = 0;
  std::vector<int> ranks;  ///< the world's, in the group's order
  int host_ranks = 1;      ///< ranks of the world on this host
  std::chrono::milliseconds timeout{1'800'000}, connect_timeout{300'000};
  /// Everybody's text, in rank order; collective. `what` names it in errors.
  std::function<std::vector<std::string>(const std::string& what, const std::string& mine)> exchange;
};

std::shared_ptr<Transport> make_local(const Place& place);
std::shared_ptr<Transport> make_shared_memory(const Place& place);
/// `address`: where the others reach this process; empty: found out.
std::shared_ptr<Transport> make_tcp(const Place& place, const std::string& address);

}  // namespace tessera::wire
