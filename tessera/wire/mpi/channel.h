#pragma once
/// \file
/// A group's communicator: messages between its ranks, the announcements by which they compare their collectives, and
/// notices of failures and departures.
///
/// Nothing here blocks inside the library: whoever waits tests its request in turn with the other ranks' notices, so
/// that a wait ends with a name when its time is over or a rank has failed or left. Between tests it yields, later it
/// sleeps (at most 0.5 ms). A thread of the channel does the same for messages that nobody waits for.

#include <tessera/wire/mpi/library.h>
#include <tessera/wire/transport.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tessera::wire::mpi {

/// A started operation of the library. Only Channel uses its members.
struct Posted {
  bool is_message = false;  ///< started by a caller; else a part of a collective
  bool is_receive = false;
  launch::Entry entry;  ///< the operation that it belongs to
  int peer = -1;        ///< any_source: of a message, or a collective of the library
  std::int64_t bytes = 0;
  std::mutex mutex;  ///< guards the rest
  tessera_mpi_handle request = 0;
  bool done = false;
  std::exception_ptr failure;
  int source = any_source;
  std::shared_ptr<void> keep;  ///< memory that the library may use
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
class Channel {
 public:
  /// Collective. Throws Failure if the ranks have different libraries, or were not started by that library's mpirun.
  explicit Channel(const Place& place);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  Library& library() { return library_; }
  tessera_mpi_handle comm() const { return comm_; }

  /// Begins a collective: compares it with the one that the rank before this one has announced.
  void begin(const launch::Entry& entry, std::chrono::milliseconds timeout);
  /// This rank's part of the collective is done.
  void finished();

  /// tag -1: a piece of a collective.
  Handle send(int peer, int tag, const void* data, std::size_t bytes, const launch::Entry& entry,
              std::shared_ptr<void> keep = nullptr);
  Handle recv(int peer, int tag, void* data, std::size_t bytes, const launch::Entry& entry,
              std::shared_ptr<void> keep = nullptr);
  /// A collective of the library: `post` calls it and stores its request.
  template <class Post>
  Handle collective(const launch::Entry& entry, const char* what, const Post& post) {
    auto posted = std::make_shared<Posted>();
    posted->entry = entry;
    library_.check(library_.call([&](const auto& f) { return post(f, comm_, &posted->request); }), what);
    return posted;
  }
  /// Blocks until it is done (returns true), or until patience.until (returns false). Throws Failure if a peer has
  /// left, on timeout or mismatch, or if the group failed.
  bool wait(Posted& posted, const Patience& patience);
  /// A receive's memory is not accessed any more. A send or a collective that has not ended keeps its `keep`; the
  /// library may access other memory of it until the process ends.
  void forget(const Handle& posted);

  void fail(const std::string& reason, Code code);
  void check();
  /// Says goodbye; operations in flight fail.
  void close();
  /// After close(), when no task uses the channel: the library may be finalized once all channels are released, unless
  /// an operation has not ended.
  void release();

 private:
  enum Tag { piece_tag, announcement_tag, notice_tag, first_message_tag = 8 };
  struct Notice {
    enum Kind : std::int32_t { failure, goodbye } kind = failure;
    std::int32_t code = 0;
    std::uint64_t finished = 0;  ///< goodbye: collectives that the sender has finished
    char text[3072] = {};
  };
  struct Member {
    std::string shown;  ///< "rank 2 (pid 7 on node1)"
    bool left = false;
    std::uint64_t finished = 0;  ///< if it has left: as in its Notice
    Clock::time_point left_at{};
  };
  struct Outgoing {
    std::string bytes;
    tessera_mpi_handle request = 0;
  };

  const std::string& shown(int rank) const { return members_[static_cast<std::size_t>(rank)].shown; }
  bool test(Posted& posted);
  bool cancel(tessera_mpi_handle& request);
  void look();
  void throw_if_unusable(const Posted& posted);
  void throw_if_stopped() const;
  void attend(const Handle& posted);
  void work();

  // With mutex_ locked.
  void look_locked();
  std::string lost(const Posted& posted) const;
  void take(const Notice& notice, int source);
  void tell(int peer, int tag, std::string bytes);
  void tell_all(const Notice& notice);
  void listen(int tag, void* data, std::size_t bytes, int source, tessera_mpi_handle& request);
  bool arrived(tessera_mpi_handle& request, int& source, std::int64_t& bytes);
  void set_failure(const std::string& reason, Code code);
  void send_out(std::chrono::milliseconds limit);
  Handle make(bool receives, int peer, int tag, std::size_t bytes, const launch::Entry& entry,
              std::shared_ptr<void> keep);

  Library& library_;
  const int rank_;
  const std::string name_;
  const int left_;  // the rank before this one, cyclically
  const std::function<std::optional<std::string>()> stop_requested_;
  tessera_mpi_handle comm_ = 0;

  mutable std::mutex mutex_;  // guards everything below
  std::vector<Member> members_;
  std::list<Outgoing> outgoing_;
  Notice notice_;
  launch::Entry announcement_;
  tessera_mpi_handle notice_request_ = 0, announcement_request_ = 0;
  std::deque<launch::Entry> announced_;     // by the rank before this one
  std::uint64_t begun_ = 0, finished_ = 0;  // collectives
  Code failure_code_ = Code::ok;
  std::string failure_;
  bool closed_ = false, in_order_ = false, released_ = false;
  std::atomic<bool> abandoned_{false};  // an operation has not ended

  std::mutex messages_mutex_;
  std::condition_variable messages_changed_;
  std::list<std::weak_ptr<Posted>> messages_;  // messages that may need the thread
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::wire::mpi
