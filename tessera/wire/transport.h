#pragma once
/// \file
/// Interface of a transport: executes the operations of one rank in one group.

#include <tessera/wire/failure.h>
#include <tessera/wire/operation.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::wire {

using Clock = std::chrono::steady_clock;

/// A started operation. Thread-safe.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Blocks until the operation has ended (returns true), or until `until` (returns false). Throws the operation's
  /// Failure.
  virtual bool wait_until(Clock::time_point until) = 0;
  /// Whether the operation has ended; does not wait for other ranks. Throws the operation's Failure.
  virtual bool poll() = 0;
  /// recv: the sender, once the operation has ended.
  virtual int source() const { return any_source; }
};

/// One thread at a time may start operations; everything else is thread-safe. A failed collective makes the group fail
/// on all ranks.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  /// `operation.timeout` must be set. Throws Failure if the group has failed or is closed.
  virtual std::shared_ptr<Pending> start(Operation operation) = 0;
  /// Makes the group fail on all ranks. Only the first reason is kept.
  virtual void fail(const std::string& reason, Code code) = 0;
  /// Throws the Failure that a newly started operation would end with.
  virtual void check() const = 0;
  /// Leaves the group: unfinished operations fail.
  virtual void close() = 0;
  /// Whether other ranks read this memory in place, so that an all_reduce must work in place.
  virtual bool is_shared(const void* data) const { return false; }
};

/// Describes a group to its transport.
struct Place {
  std::string name;
  int rank = 0, size = 1;
  int world_rank = 0;
  std::vector<int> ranks;  ///< the members' ranks in the world, in the group's order
  int host_ranks = 1;      ///< ranks of the world on this host
  std::chrono::milliseconds timeout{1'800'000}, connect_timeout{300'000};
  /// Exchanges one text per rank, in rank order; collective. `what` names it in errors.
  std::function<std::vector<std::string>(const std::string& what, const std::string& mine)> exchange;
};

std::shared_ptr<Transport> make_local(const Place& place);
std::shared_ptr<Transport> make_shared_memory(const Place& place);
/// `address`: where other ranks reach this process; empty: determined automatically.
std::shared_ptr<Transport> make_tcp(const Place& place, const std::string& address);

}  // namespace tessera::wire
