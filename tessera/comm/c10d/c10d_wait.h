#pragma once
/// \file
/// Waiting for works of Gloo in LibTorch so that a reason to stop (watch.h) ends the wait with its text. The normal
/// path is one wait on Gloo's own condition variable.

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

namespace c10d {
class Work;
}

namespace tessera::comm {

/// A collective of Gloo: its wait may be given up and taken up again, so it is done in slices of 200 ms. Throws what
/// the work threw, or Error with the reason to stop (the work then goes on in Gloo's thread and keeps its tensors).
void wait_for_collective(const c10::intrusive_ptr<c10d::Work>& work);

/// A send or receive of Gloo: a wait that times out closes the connection, but one that is aborted from outside does
/// not. A thread of this object looks for reasons to stop every 100 ms while somebody waits; it starts with the first
/// wait. Thread-safe; outlives its waits.
class MessageWaiter {
 public:
  MessageWaiter() = default;
  ~MessageWaiter();
  MessageWaiter(const MessageWaiter&) = delete;
  MessageWaiter& operator=(const MessageWaiter&) = delete;

  /// Blocks until the message is done. Throws what the work threw, or Error with the reason to stop, or Error when
  /// abort() was called. The memory of a message that failed is not touched any more once the work is destroyed.
  void wait(const c10::intrusive_ptr<c10d::Work>& work);
  /// Ends present and later waits.
  void abort();

 private:
  void watch();
  void throw_if_ended();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<c10d::Work*> waits_;
  bool asleep_ = true;  // the thread waits for the first wait
  bool aborted_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace tessera::comm
