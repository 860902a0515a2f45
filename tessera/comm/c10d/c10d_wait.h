#pragma once
/// \file
/// Waits for LibTorch's Gloo works such that a reason to stop (watch.h) ends the wait with that reason as its error.
/// Normally this is a single wait on Gloo's own condition variable.

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

namespace c10d {
class Work;
}

namespace tessera::comm {

/// Waits for a Gloo collective. Such a wait can be interrupted and resumed, so it is done in slices of 200 ms. Throws
/// the work's exception, or Error with the reason to stop; in that case the work continues in Gloo's thread and keeps
/// its tensors.
void wait_for_collective(const c10::intrusive_ptr<c10d::Work>& work);

/// Waits for Gloo's sends and receives. Their wait closes the connection when it times out, but not when it is aborted
/// from outside, so slices are not possible: a thread checks for reasons to stop every 100 ms while any wait is in
/// progress. The first wait starts the thread. Thread-safe; must outlive its waits.
class MessageWaiter {
 public:
  MessageWaiter() = default;
  ~MessageWaiter();
  MessageWaiter(const MessageWaiter&) = delete;
  MessageWaiter& operator=(const MessageWaiter&) = delete;

  /// Blocks until the message is done. Throws the work's exception, or Error with the reason to stop or because of
  /// abort(). A failed message's memory is not accessed after the work is destroyed.
  void wait(const c10::intrusive_ptr<c10d::Work>& work);
  /// Ends all current and future waits.
  void abort();

 private:
  void watch();
  void throw_if_ended();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<c10d::Work*> waits_;
  bool asleep_ = true;  // the thread is idle until the next wait
  bool aborted_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace tessera::comm
