#pragma once
/// \file
/// An operation that was started, as its caller sees it: one or several of a transport, and what is left to do when
/// they have ended.

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
    std::vector<launch::Entry> entries;  ///< as the recorder began them
    std::function<void()> finish;        ///< once, when all have ended well: takes results to where they belong
  };
  /// Told once when it has ended, before anybody learns of it.
  using Ended = std::function<void(const Work& work)>;

  Work(Parts parts, Ended on_end) : parts_(std::move(parts)), on_end_(std::move(on_end)) {}

  /// Blocks until it has ended: true, or false at that time. Does not throw for an operation that failed: code().
  bool wait_until(Clock::time_point until);
  /// Whether it has ended. Does not block.
  bool poll();

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Once it has ended.
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
