#pragma once
/// \file
/// Maps the callers' integer handles to objects.

#include <tessera/c/guard.h>
#include <tessera/wire/world.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera::c {

/// Handles of one kind. Kinds use disjoint numbers, and no number is issued twice. Thread-safe.
template <class T>
class Table {
 public:
  Table(const char* kind, std::uint64_t first) : kind_(kind), next_(first) {}

  std::uint64_t add(std::shared_ptr<T> thing) {
    const std::lock_guard lock(mutex_);
    things_.emplace(next_, std::move(thing));
    return next_++;
  }
  /// Throws Failure naming the kind and the number.
  std::shared_ptr<T> find(std::uint64_t handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = things_.find(handle);
    if (found == things_.end()) refuse(handle);
    return found->second;
  }
  /// Removes the handle; `ended`: later uses are reported as shut down.
  std::shared_ptr<T> take(std::uint64_t handle, bool ended) {
    const std::lock_guard lock(mutex_);
    const auto found = things_.find(handle);
    if (found == things_.end()) refuse(handle);
    auto thing = std::move(found->second);
    things_.erase(found);
    if (ended) ended_.insert(handle);
    return thing;
  }
  template <class Which>
  void end_if(const Which& which) {
    const std::lock_guard lock(mutex_);
    for (auto thing = things_.begin(); thing != things_.end();) {
      if (!which(*thing->second)) {
        ++thing;
        continue;
      }
      ended_.insert(thing->first);
      thing = things_.erase(thing);
    }
  }
  template <class Visit>
  void each(const Visit& visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, thing] : things_) visit(handle, *thing);
  }

 private:
  [[noreturn]] void refuse(std::uint64_t handle) const {
    if (ended_.contains(handle)) {
      throw wire::Failure(wire::Code::shut_down, concat("the ", kind_, " ", handle, " was shut down."));
    }
    throw wire::Failure(wire::Code::invalid, concat(handle, " is not a ", kind_,
                                                    ": it was never issued, or was freed, or belongs to the "
                                                    "process that forked this one."));
  }

  const char* const kind_;
  mutable std::mutex mutex_;
  std::uint64_t next_;
  std::unordered_map<std::uint64_t, std::shared_ptr<T>> things_;
  std::set<std::uint64_t> ended_;
};

struct WorldHandle {
  std::shared_ptr<wire::World> world;
  std::uint64_t all = 0;  ///< the handle of its group "world"
};
struct GroupHandle {
  std::shared_ptr<wire::World> world;
  std::shared_ptr<wire::Group> group;
  bool is_world = false;
};
struct WorkHandle {
  std::shared_ptr<wire::Work> work;
};

/// This process's tables; empty in a child after fork(). Never destroyed.
struct Handles {
  Table<WorldHandle> worlds{"world", 1000001};
  Table<GroupHandle> groups{"group", 2000001};
  Table<WorkHandle> works{"work", std::uint64_t{1} << 40};
  const Handles* of_parent = nullptr;  ///< in a child after fork(): kept, so that leak checkers see no leak
};
Handles& handles();

/// Starts the request, or adds it to this thread's batch. Blocks if `work` is null. `from` may be null.
void run(tessera_group group, wire::Request request, const tessera_call* call, tessera_work* work,
         std::int32_t* from = nullptr);
/// Waits for the work (`work` null), or returns its handle.
void deliver(std::shared_ptr<wire::Work> started, tessera_work* work, std::int32_t* from);

}  // namespace tessera::c
