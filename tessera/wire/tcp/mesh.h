#pragma once
/// \file
/// wire/tcp/: a group whose ranks are connected by TCP. This header: one connection to each other rank, carrying the
/// pieces of collectives and messages.
///
/// A thread of the mesh receives, and sends data that could not be sent at once, so that ranks that send to each other
/// never block each other. Data that arrives before its receive is posted is stored.

#include <tessera/launch/agent/unique_fd.h>
#include <tessera/launch/watch/record.h>
#include <tessera/wire/transport.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::wire::tcp {

/// A posted send or receive. Its members are guarded by the mesh's mutex.
struct Posted {
  launch::Entry entry;  ///< the operation that it belongs to
  int peer = -1;        ///< any_source: of a message
  int tag = -1;         ///< -1: a piece of a collective
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool done = false;
  int source = any_source;
};
using Handle = std::shared_ptr<Posted>;

/// Purpose and limits of a wait.
struct Patience {
  const char* what;  ///< "to send a message"
  std::chrono::milliseconds timeout;
  Clock::time_point begin = Clock::now();
  Clock::time_point until = Clock::time_point::max();  ///< at this time, wait() returns false without an error
};

/// Thread-safe.
class Mesh : public std::enable_shared_from_this<Mesh> {
 public:
  /// `sockets`: connected, one per rank (unset for this rank); `members`: "rank 2 (pid 7 on node1)".
  Mesh(int rank, std::vector<launch::UniqueFd> sockets, std::vector<std::string> members);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  void start();  ///< the thread

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  /// Begins a collective: compares it with the collectives that other ranks have announced. Throws Failure.
  void begin(const launch::Entry& entry);
  Handle send(int peer, int tag, const void* data, std::size_t bytes, const launch::Entry& entry);
  Handle recv(int peer, int tag, void* data, std::size_t bytes, const launch::Entry& entry);
  /// Blocks until `posted` is done and its memory may be reused (returns true), or until patience.until (returns
  /// false). Throws Failure if a peer is gone or has left, on timeout or mismatch, or if the group failed. After a
  /// failure, the memory is not accessed.
  bool wait(const Handle& posted, const Patience& patience);
  /// After this call, the memory of `posted` is not accessed.
  void forget(const Handle& posted);

  void fail(const std::string& reason, Code code);
  void check();
  void close();

 private:
  struct Header {
    std::uint32_t magic = 0x54455343;
    std::uint8_t kind = 0;
    std::uint8_t has_entry = 0;
    std::uint16_t unused = 0;
    std::int32_t tag = 0;
    std::int32_t code = 0;
    std::uint64_t sequence = 0, fingerprint = 0, bytes = 0;
  };
  enum Kind : std::uint8_t { piece, message, announcement, failure, goodbye };
  struct Outgoing {
    std::string head;  // header, entry, small payloads
    const std::byte* data = nullptr;
    std::size_t bytes = 0, sent = 0;  // bytes of head and data together
    Handle posted;
  };
  struct Arrived {
    Header header;
    int source = -1;
    std::vector<std::byte> data;
    bool whole = false;
  };
  struct Peer {
    launch::UniqueFd fd;
    std::deque<Outgoing> out;
    std::string head;  // start of the arriving frame
    bool in_payload = false;
    Header header;
    std::size_t got = 0;
    Handle target;                      // destination of the payload
    std::shared_ptr<Arrived> arriving;  // temporary storage if `target` is null
    std::deque<Handle> waiting;         // posted receives of pieces, in order
    std::deque<std::shared_ptr<Arrived>> pieces;
    std::map<std::uint64_t, launch::Entry> told;  // the peer's announced collectives, by number
    std::uint64_t told_to = ~std::uint64_t{0};    // the last collective announced to the peer
    bool left = false, gone = false, finished = false;
  };

  // Everything below is guarded by mutex_.
  void queue(int peer, Header header, const launch::Entry* entry, const void* data, std::size_t bytes, Handle posted);
  void flush(Peer& peer);
  void receive(int peer);
  void take_head(int peer);
  void take_payload(int peer);
  void lose(Peer& peer);
  Handle match(int peer, const Header& header);
  bool deliver(const Handle& posted, Arrived& arrived);
  void compare(int peer, std::uint64_t sequence);
  void mismatch(int peer, const launch::Entry& mine, const Header& theirs);
  void set_failure(const std::string& reason, Code code, bool tell);
  void throw_if_unusable(int peer) const;
  void announce(const launch::Entry& entry);
  void wake() const;
  void run();
  bool all_finished() const;

  const int rank_;
  const std::vector<std::string> members_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  std::deque<Handle> messages_wanted_;
  std::deque<std::shared_ptr<Arrived>> messages_;
  std::map<std::uint64_t, launch::Entry> mine_;
  launch::UniqueFd bell_;
  Code failure_code_ = Code::ok;
  std::string failure_;
  bool closed_ = false;
};

/// Connects all ranks of the group. For `address` see tcp/connect.cpp.
std::shared_ptr<Mesh> connect(const Place& place, const std::string& address);

}  // namespace tessera::wire::tcp
