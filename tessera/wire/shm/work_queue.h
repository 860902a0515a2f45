#pragma once
/// \file
/// The operations of one rank in one group through shared memory, asynchronous and in order: what backend.cpp gives
/// tensors to. Small collectives are published when they start and end in the wait; large ones are run by a thread of
/// the group, unless somebody waits first and runs them himself.

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

  /// `communicator` is connected.
  explicit WorkQueue(std::unique_ptr<Communicator> communicator);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  Communicator& communicator() { return *communicator_; }

  /// One thread per group starts operations; waiting is for any. Throws Error when the group has failed or is closed.
  std::shared_ptr<Task> start(Operation operation);
  void wait(Task& task);
  bool done(Task& task);
  using Clock = Communicator::Clock;
  /// As wait(), but returns false at that time; the group's thread runs the task meanwhile, and after it.
  bool wait_until(Task& task, Clock::time_point until);

  std::shared_ptr<Message> start_message(Operation operation) { return mailbox_.start(std::move(operation)); }
  void wait(Message& message) { mailbox_.wait_until(message, Clock::time_point::max()); }
  bool wait_until(Message& message, Clock::time_point until) { return mailbox_.wait_until(message, until); }
  bool done(Message& message) { return mailbox_.done(message); }
  /// done(), and throws if it will never be.
  bool poll(Message& message) { return mailbox_.poll(message); }
  /// Throws the Failure with which start() would end.
  void check();

  /// Leaves: later operations throw, so do those that have not ended. Nobody waits in this group any more.
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
  std::deque<std::shared_ptr<Task>> queue_;  // not ended, in order
  std::uint64_t next_number_ = 0;
  bool running_ = false, stop_ = false;
  int wanted_ = 0;  // tasks in the queue that the thread shall run
  std::atomic<bool> starter_blocked_{false};
  std::exception_ptr broken_;
  std::thread thread_;
};

}  // namespace tessera::wire::shm
