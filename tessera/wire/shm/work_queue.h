#pragma once
/// \file
/// Runs the operations of one rank in one group over shared memory, asynchronously and in order. Small collectives are
/// published at the start and finished in the wait; large ones run on the group's thread, unless a caller waits first
/// and runs them itself.

#include <tessera/wire/operation.h>
#include <tessera/wire/shm/collective.h>
#include <tessera/wire/shm/communicator.h>
#include <tessera/wire/shm/mailbox.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::wire::shm {

class WorkQueue {
 public:
  /// A started collective.
  struct Task {
    Operation operation;
    std::uint64_t number = 0;
    bool published = false, ended = false;
    std::exception_ptr failure;
  };

  /// `communicator` must be connected.
  explicit WorkQueue(std::unique_ptr<Communicator> communicator);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  Communicator& communicator() { return *communicator_; }

  /// One thread per group starts operations; any thread may wait. Throws Error if the group has failed or is closed.
  std::shared_ptr<Task> start(Operation operation);
  void wait(Task& task);
  bool done(Task& task);
  using Clock = Communicator::Clock;
  /// Like wait(), but returns false at `until`; the group's thread then runs the task.
  bool wait_until(Task& task, Clock::time_point until);

  std::shared_ptr<Message> start_message(Operation operation) { return mailbox_.start(std::move(operation)); }
  void wait(Message& message) { mailbox_.wait_until(message, Clock::time_point::max()); }
  bool wait_until(Message& message, Clock::time_point until) { return mailbox_.wait_until(message, until); }
  bool done(Message& message) { return mailbox_.done(message); }
  /// Like done(), but throws if the message can never complete.
  bool poll(Message& message) { return mailbox_.poll(message); }
  /// Throws the Failure that start() would throw.
  void check();

  /// Leaves the group: unfinished and later operations throw. No thread may wait in this group after that.
  void close();

 private:
  void run_first(std::unique_lock<std::mutex>& lock);
  void publish_waiting();
  void want_thread();
  void work();

  std::unique_ptr<Communicator> communicator_;
  Collectives collectives_;
  Mailbox mailbox_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> queue_;  // unfinished tasks, in order
  std::uint64_t next_number_ = 0;
  bool running_ = false, stop_ = false;
  int wanted_ = 0;  // tasks in the queue that the thread must run
  std::atomic<bool> starter_blocked_{false};
  std::exception_ptr broken_;
  std::thread thread_;
};

}  // namespace tessera::wire::shm
