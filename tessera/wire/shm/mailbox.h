#pragma once
/// \file
/// Messages between two ranks of a group. The sender leaves a message in its own segment (a tensor of the arena is only
/// named, others are copied), the receiver copies it out and says so; both are done then. Messages from one rank with
/// one tag are taken in the order in which they were sent.

#include <tessera/wire/operation.h>
#include <tessera/wire/shm/communicator.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::wire::shm {

/// A message that was started and has not ended.
struct Message {
  explicit Message(Operation what) : operation(std::move(what)) {}
  Operation operation;
  const Communicator::Clock::time_point started = Communicator::Clock::now();
  bool ended = false;
  int source = any_source;      ///< recv: who sent it, once it has ended
  std::string error;            ///< why it failed, once it has ended; empty: it went well
  MessageSlot* slot = nullptr;  ///< where a message lies once it is sent
  std::byte* copy = nullptr;    ///< the message in the heap, if it is not in the arena
  std::uint64_t copy_bytes = 0;
};

/// Thread-safe. A thread of its own moves messages while the caller does something else.
class Mailbox {
 public:
  explicit Mailbox(Communicator& communicator) : communicator_(communicator) {}
  ~Mailbox() { close(); }

  std::shared_ptr<Message> start(Operation operation);
  /// Blocks until the message was taken or received, or returns false at that time. Throws Failure, see
  /// Communicator::await, and when sizes or types differ.
  bool wait_until(Message& message, Communicator::Clock::time_point until);
  bool done(Message& message);
  bool poll(Message& message);
  /// Ends the thread.
  void close();

 private:
  // All under mutex_.
  void move();
  bool place(Message& message);
  void take_back(Message& message);
  void receive(Message& message);
  MessageSlot* oldest_from(int source, int tag) const;
  std::byte* buffer(std::uint64_t bytes, std::uint64_t& got);

  void serve();
  Communicator::Wait wait_of(const Message& message, Communicator::Clock::time_point until) const;

  Communicator& communicator_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Message>> sends_, receives_;
  std::multimap<std::uint64_t, std::byte*> spare_;  // buffers of the heap by size: a page touched first costs most
  std::uint64_t spare_bytes_ = 0, next_number_ = 0;
  unsigned next_source_ = 0;
  std::atomic<bool> stop_{false}, starter_blocked_{false};
  std::thread thread_;
};

}  // namespace tessera::wire::shm
