#pragma once
/// \file
/// One rank's view of its group: the members' control areas, waits for them, and propagation of failures. Waits spin
/// briefly, then sleep in slices; each slice checks whether waiting still makes sense.

#include <tessera/wire/operation.h>
#include <tessera/wire/shm/control.h>
#include <tessera/wire/shm/segment.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tessera::wire::shm {

struct CommunicatorOptions {
  std::string name;  ///< the group's name, for messages
  int rank = 0;
  int job_rank = 0;    ///< this process's rank in the job, for messages
  int host_ranks = 1;  ///< ranks of the job on this host: if they outnumber the cores, waits do not spin
  std::chrono::milliseconds timeout{1'800'000};  ///< the longest wait for a peer
  /// Returns an external reason to stop waiting (from the launcher), or nullopt. Called about 20 times per second.
  std::function<std::optional<std::string>()> stop_requested;
};

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;

  /// Allocates a control area in `own`. Send announcement() to the other ranks, then call connect() with everyone's.
  Communicator(Segment& own, CommunicatorOptions options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  std::string announcement() const;
  void connect(const std::vector<std::string>& announcements);

  const std::string& name() const { return options_.name; }
  int rank() const { return options_.rank; }
  int size() const { return static_cast<int>(members_.size()); }
  Segment& segment() const { return own_; }
  Control& control() const { return *control_; }
  Control& control(int rank) const { return *members_[static_cast<std::size_t>(rank)].control; }
  /// Memory of a member, checked to be inside its segment.
  std::byte* at(int rank, std::uint64_t offset, std::size_t bytes) const;
  /// "rank 2 (pid 123)", with the rank in the group.
  std::string member_text(int rank) const;

  /// One wait: its deadline, and the error text for a timeout.
  struct Wait {
    const launch::Entry& entry;
    const char* what;                      ///< "to start it"
    std::chrono::milliseconds timeout{0};  ///< 0: options.timeout
    /// Set if the peer must start an operation: true while this wait blocks the thread that starts this process's
    /// operations. Only then is a cycle of waiting processes a deadlock.
    const std::atomic<bool>* starter_blocked = nullptr;
    Clock::time_point until = Clock::time_point::max();  ///< at this time, await() returns false without an error
    Clock::time_point begin = Clock::now();
  };
  /// Blocks until ready() returns true (returns true) or until `wait.until` (returns false). `for_rank`: the rank that
  /// must act, any_source for any. `bell`: rings when it has acted: its pulse, or this rank's own bell. Throws Failure
  /// if the peer is gone, has failed or left, on timeout, in a cycle of waiting processes, or on a request to stop.
  template <class Ready>
  bool await(int for_rank, Doorbell& bell, const Wait& wait, const Ready& ready) {
    if (ready()) return true;
    for (int i = spins_to(for_rank); i > 0; --i) {
      relax();
      if (ready()) return true;
    }
    Sleeping sleeping(*this, for_rank, wait);
    while (true) {
      const std::uint32_t seen = bell.count.load();
      if (ready()) return true;
      bell.sleep(seen, sleeping.slice());
      if (ready()) return true;
      try {
        sleeping.look();
      } catch (...) {
        if (ready()) return true;  // what the peer did before it died or left counts
        throw;
      }
      if (Clock::now() >= wait.until) return false;
    }
  }
  template <class Ready>
  void await_pulse(int for_rank, const Wait& wait, const Ready& ready) {
    await(for_rank, control(for_rank).pulse, wait, ready);
  }

  /// One check of await(), for pollers: throws Failure if waiting no longer makes sense.
  void look(int for_rank, const Wait& wait) const;

  /// Tells all ranks that this one cannot continue. Only the first reason is kept.
  void fail(const std::string& reason, Code code = Code::system);
  /// Leaves the group in an orderly way.
  void close();
  /// Throws the reason if a member has failed.
  void throw_if_failed() const;
  /// Throws the reason if that member has failed.
  void throw_if_failed(int rank) const;
  /// Throws the reason if this rank has failed.
  void throw_if_own_failed() const;

  /// Counts the threads that start operations in this process (deadlocks are detected only if there is just one).
  void note_thread() const;
  /// True if this is the only thread that has ever started an operation.
  bool is_starter() const;

 private:
  struct Member {
    std::shared_ptr<PeerSegment> segment;  // null: this rank
    int job_rank = 0;
    Control* control = nullptr;
    pid_t pid = -1;
  };

  // The slow path of await().
  class Sleeping {
   public:
    Sleeping(Communicator& communicator, int for_rank, const Wait& wait);
    ~Sleeping();
    std::chrono::nanoseconds slice();
    void look();

   private:
    void show();
    void look_for_ring();
    Communicator& communicator_;
    int for_rank_;
    const Wait& wait_;
    Clock::time_point next_look_;
    int still_ = 0;
    bool shown_ = false;
    std::vector<std::uint64_t> ring_seen_, looks_seen_;  // the others' turns and looks when this cycle was first seen
  };

  int spins_to(int rank) const;
  void check_members(int for_rank, const Wait& wait) const;
  void check_peer(int for_rank, const Wait& wait) const;
  Clock::time_point deadline(const Wait& wait) const;
  std::string last_operation(int rank) const;

  Segment& own_;
  CommunicatorOptions options_;
  std::byte* area_ = nullptr;
  Control* control_ = nullptr;
  std::vector<Member> members_;
  int spins_ = 0;
  std::mutex fail_mutex_;
};

/// Sets a flag (if not null) while the object lives.
class Raised {
 public:
  explicit Raised(std::atomic<bool>* flag) : flag_(flag) {
    if (flag_ != nullptr) *flag_ = true;
  }
  ~Raised() {
    if (flag_ != nullptr) *flag_ = false;
  }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

 private:
  std::atomic<bool>* flag_;
};

}  // namespace tessera::wire::shm
