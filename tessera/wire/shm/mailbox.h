#pragma once
/// \file
/// Messages between two ranks of a group. The sender places a message in its own segment (a tensor in the arena is
/// passed by offset, others are copied); the receiver copies it and acknowledges it, which completes both sides.
/// Messages from one rank with the same tag are received in the order in which they were sent.

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

/// A started message that has not ended.
struct Message {
  explicit Message(Operation what) : operation(std::move(what)) {}
  Operation operation;
  const Communicator::Clock::time_point started = Communicator::Clock::now();
  bool ended = false;
  int source = any_source;      ///< recv: the sender, once it has ended
  std::string error;            ///< the error, once it has ended; empty: success
  MessageSlot* slot = nullptr;  ///< slot of a sent message
  std::byte* copy = nullptr;    ///< copy of the message in the heap, unless it is in the arena
  std::uint64_t copy_bytes = 0;
};

/// Thread-safe. A helper thread moves messages while the caller does other work.
class Mailbox {
 public:
  explicit Mailbox(Communicator& communicator) : communicator_(communicator) {}
  ~Mailbox() { close(); }

  std::shared_ptr<Message> start(Operation operation);
  /// Blocks until the message was taken or received, or returns false at `until`. Throws Failure as Communicator::await
  /// does, and if sizes or types differ.
  bool wait_until(Message& message, Communicator::Clock::time_point until);
  bool done(Message& message);
  bool poll(Message& message);
  /// Ends the thread.
  void close();

 private:
  // Everything below is guarded by mutex_.
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
  std::multimap<std::uint64_t, std::byte*> spare_;  // free heap buffers by size; reused because first touches are
                                                    // expensive
  std::uint64_t spare_bytes_ = 0, next_number_ = 0;
  unsigned next_source_ = 0;
  std::atomic<bool> stop_{false}, starter_blocked_{false};
  std::thread thread_;
};

}  // namespace tessera::wire::shm
