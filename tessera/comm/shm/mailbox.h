#pragma once
/// \file
/// Messages between two ranks of a group. The sender leaves a message in its own segment (a tensor of the arena is only
/// named, others are copied), the receiver copies it out and says so; both are done then. Messages from one rank with
/// one tag are taken in the order in which they were sent.

#include <tessera/comm/shm/communicator.h>
#include <tessera/comm/shm/operation.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::comm::shm {

/// A message that was started and has not ended.
struct Message {
  explicit Message(Operation what) : operation(std::move(what)) {}
  Operation operation;
  bool ended = false;
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
  /// Blocks until the message was taken or received. Throws Error, see Communicator::await, and when sizes or types
  /// differ.
  void wait(Message& message);
  bool done(Message& message);
  /// Ends the thread.
  void close();

 private:
  // All under mutex_.
  void move();
  bool place(Message& message);
  void take_back(Message& message);
  void receive(Message& message);
  std::byte* buffer(std::uint64_t bytes, std::uint64_t& got);

  void serve();

  Communicator& communicator_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Message>> sends_, receives_;
  std::multimap<std::uint64_t, std::byte*> spare_;  // buffers of the heap by size: a page touched first costs most
  std::uint64_t spare_bytes_ = 0, next_number_ = 0;
  std::atomic<bool> stop_{false}, starter_blocked_{false};
  std::thread thread_;
};

}  // namespace tessera::comm::shm
