#pragma once
/// \file
/// ring/: our collectives (wire/ring) over the messages of LibTorch's backends.
///
/// Runs the operations of one group in order. They run on the queue's thread, unless the caller already waits for the
/// next one: then it runs on the caller's thread, without a context switch.

#include <tessera/comm/backend.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::comm::ring {

class Queue {
 public:
  Queue() = default;
  /// Runs the remaining tasks, then joins the thread.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// `task` owns the tensors that it works on. Its exception is thrown by the Pending's wait(), and immediately by
  /// every later task: after a failure the ranks are out of step. The wait ends early if there is a reason to stop
  /// (watch.h).
  std::shared_ptr<Pending> push(std::function<void()> task);
  /// True when every task has ended.
  bool idle() const;

 private:
  class Task;
  struct State;
  void work();
  static void run_front(State& state, std::unique_lock<std::mutex>& lock);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace tessera::comm::ring
