#pragma once
/// \file
/// A started operation as seen by its caller: one or several operations of a transport, and the steps that follow them.

#include <tessera/launch/watch/record.h>
#include <tessera/wire/recorder.h>
#include <tessera/wire/transport.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::wire {

/// Thread-safe.
class Work {
 public:
  struct Parts {
    std::vector<std::shared_ptr<Pending>> pendings;
    std::vector<launch::Entry> entries;  ///< as filled in by the recorder
    std::function<void()> finish;        ///< called once if all have succeeded: copies results to their destination
  };
  /// Called once when the work has ended, before any waiter returns.
  using Ended = std::function<void(const Work& work)>;

  Work(Parts parts, Ended on_end) : parts_(std::move(parts)), on_end_(std::move(on_end)) {}

  /// Blocks until the work has ended (returns true), or until `until` (returns false). Does not throw for a failed
  /// operation: see code().
  bool wait_until(Clock::time_point until);
  /// Whether the work has ended. Does not block.
  bool poll();

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Valid once the work has ended.
  Code code() const { return code_; }
  const std::string& error() const { return error_; }
  int source() const { return source_; }
  const std::vector<launch::Entry>& entries() const { return parts_.entries; }
  std::int64_t waited_ns() const { return waited_ns_.load(std::memory_order_relaxed); }

 private:
  template <class Ask>
  bool ask(const Ask& ask);
  void end(Code code, const std::string& error);

  std::mutex mutex_;
  Parts parts_;
  Ended on_end_;
  std::atomic<bool> ended_{false};
  Code code_ = Code::ok;
  std::string error_;
  int source_ = any_source;
  std::atomic<std::int64_t> waited_ns_{0};
};

}  // namespace tessera::wire
