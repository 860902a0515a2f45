#pragma once
/// \file
/// Runs the collectives of one rank in one group over TCP in order, on a thread or on the first waiter's thread.

#include <tessera/wire/transport.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::wire::tcp {

class Tasks {
 public:
  struct Task {
    std::function<void()> run;
    bool ended = false;
    std::exception_ptr failure;
  };

  ~Tasks() { close(); }

  std::shared_ptr<Task> push(std::function<void()> run);
  /// Rethrows the task's exception.
  bool wait_until(Task& task, Clock::time_point until);
  bool ended(Task& task);
  /// Fails all tasks that have not begun. Waits for the running task, whose own waits the caller must have ended
  /// before.
  void close();

 private:
  void run_first(std::unique_lock<std::mutex>& lock);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> queue_;
  bool running_ = false, stop_ = false;
  std::exception_ptr broken_;
  std::thread thread_;
};

}  // namespace tessera::wire::tcp
