#pragma once
/// \file
/// The ranks of one group as one of them sees them: their control areas, how to wait for them, and how a failure
/// reaches everybody. Waits spin shortly, then sleep in slices; each slice looks whether waiting still makes sense.

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
  std::string name;  ///< the group's, for texts
  int rank = 0;
  int job_rank = 0;    ///< this process's in the job, for texts
  int host_ranks = 1;  ///< processes of the job on this host: with more of them than cores nobody spins
  std::chrono::milliseconds timeout{1'800'000};  ///< the longest wait for a peer
  /// A reason to stop waiting that comes from elsewhere (the launcher), or nullopt. Called about 20 times a second.
  std::function<std::optional<std::string>()> stop_requested;
};

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;

  /// Takes a fresh control area from `own`. Tell the others announcement(), then call connect() with everybody's.
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
  /// Memory of a member, checked to lie inside its segment.
  std::byte* at(int rank, std::uint64_t offset, std::size_t bytes) const;
  /// "rank 2 (pid 123)": the rank in the group.
  std::string member_text(int rank) const;

  /// One wait: its deadline, and the error text when it is missed.
  struct Wait {
    const launch::Entry& entry;
    const char* what;                      ///< "to start it"
    std::chrono::milliseconds timeout{0};  ///< 0: that of the options
    /// Given when the peer must start something: true while the thread that starts operations in this process is
    /// blocked by this very wait. Then a ring of waiting processes never moves again.
    const std::atomic<bool>* starter_blocked = nullptr;
    Clock::time_point until = Clock::time_point::max();  ///< then await() gives up without an error
    Clock::time_point begin = Clock::now();
  };
  /// Blocks until ready(): true, or false when it is `wait.until`. `for_rank` is who must act, any_source if it may be
  /// anybody; `bell` is what rings when it has: its pulse, or this rank's own bell. Throws Failure: the peer is gone,
  /// failed or left; the timeout; a ring of waiting processes; a request to stop.
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

  /// What await() looks at, once, for those who poll: throws Failure if waiting makes no sense any more.
  void look(int for_rank, const Wait& wait) const;

  /// Tells everybody that this rank cannot go on. The first reason stays.
  void fail(const std::string& reason, Code code = Code::system);
  /// This rank leaves in peace.
  void close();
  /// Throws the reason when a member has failed.
  void throw_if_failed() const;
  /// Likewise when this rank has.
  void throw_if_own_failed() const;

  /// Counts the threads that start operations in this process (deadlocks are only judged when it is one).
  void note_thread() const;
  /// Whether this is the only thread that ever started one.
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
    std::vector<std::uint64_t> ring_seen_, looks_seen_;  // turns and looks of the others, when first seen
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

/// Sets a flag, if there is one, while it lives.
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
