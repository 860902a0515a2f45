#include <tessera/base/error.h>
#include <tessera/wire/mismatch.h>
#include <tessera/wire/shm/communicator.h>
#include <tessera/wire/shm/header.h>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <sstream>

namespace tessera::wire::shm {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Interval at which a waiting thread checks whether its peer has died.
constexpr milliseconds slice_limit(50);
// How long a cycle of waiting processes must show no progress to count as a deadlock.
constexpr int still_looks = 8;  // x slice_limit

int thread_id() {
  thread_local const int self = static_cast<int>(syscall(SYS_gettid));
  return self;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

template <std::size_t N>
void copy_text(char (&target)[N], const std::string& text) {
  target[text.copy(target, N - 1)] = 0;
}

template <std::size_t N>
std::string text_of(const char (&text)[N]) {
  return std::string(text, strnlen(text, N));
}

// Publishes why this process stops, for every rank that shares any group with it.
void tell_why_stuck(SegmentHeader& header, const std::string& text) {
  std::uint32_t none = 0;
  if (!header.stuck_writing.compare_exchange_strong(none, 1)) return;
  copy_text(header.stuck_reason, text);
  header.stuck.store(1);
}

[[noreturn]] void pass_on(SegmentHeader& own, const SegmentHeader& theirs) {
  const std::string text = text_of(theirs.stuck_reason);
  tell_why_stuck(own, text);
  throw Failure(Code::mismatch, text);
}

// Copies an entry that another process may be writing: terminates its texts and trusts nothing else.
launch::Entry copy_entry(const launch::Entry& source) {
  launch::Entry entry = source;
  for (char* last : {entry.reduction + sizeof entry.reduction - 1, entry.dtype + sizeof entry.dtype - 1,
                     entry.group + sizeof entry.group - 1, entry.tag + sizeof entry.tag - 1}) {
    *last = 0;
  }
  if (static_cast<int>(entry.op) >= launch::op_count) entry.op = launch::Op::barrier;
  return entry;
}

}  // namespace

Communicator::Communicator(Segment& own, CommunicatorOptions options) : own_(own), options_(std::move(options)) {
  area_ = own_.allocate(area_bytes);
  control_ = new (area_) Control{};
  spins_ = options_.host_ranks > usable_cores() ? 20 : 1000;
}

Communicator::~Communicator() {
  // A peer may still read the area (this rank's state, data not yet consumed), so it is never reused. Groups are few;
  // their pages take some hundred KB.
  close();
}

std::string Communicator::announcement() const {
  return concat(options_.job_rank, " ", own_.offset(area_), " ", own_.address());
}

void Communicator::connect(const std::vector<std::string>& announcements) {
  TESSERA_CHECK(announcements.size() <= static_cast<std::size_t>(max_ranks), "group '", options_.name, "' has ",
                announcements.size(), " ranks; shared memory supports at most ", max_ranks);
  for (std::size_t r = 0; r < announcements.size(); ++r) {
    Member member;
    std::istringstream words(announcements[r]);
    std::uint64_t offset = 0;
    std::string address;
    if (!(words >> member.job_rank >> offset) || !std::getline(words >> std::ws, address) || offset % 4096 != 0) {
      throw Error(concat("rank ", r, " announced '", announcements[r], "', which is not a control area."));
    }
    if (static_cast<int>(r) == options_.rank) {
      member.control = control_;
      member.pid = getpid();
    } else {
      try {
        member.segment = map_peer(address);
      } catch (const std::exception& error) {
        throw Error(concat("rank ", r, ": ", error.what()));
      }
      member.control = reinterpret_cast<Control*>(member.segment->at(offset, area_bytes));
      member.pid = member.segment->pid();
    }
    members_.push_back(std::move(member));
  }
}

std::byte* Communicator::at(int rank, std::uint64_t offset, std::size_t bytes) const {
  const Member& member = members_[static_cast<std::size_t>(rank)];
  if (member.segment) return member.segment->at(offset, bytes);
  TESSERA_CHECK(offset <= own_.bytes() && own_.bytes() - offset >= bytes, "outside this process's segment");
  return own_.base() + offset;
}

std::string Communicator::member_text(int rank) const {
  if (rank == any_source) return "any rank";
  const Member& member = members_[static_cast<std::size_t>(rank)];
  const std::string job =
      member.job_rank == rank ? "" : concat(" of the group = rank ", member.job_rank, " of the job");
  return concat("rank ", rank, job, " (pid ", member.pid, ")");
}

int Communicator::spins_to(int rank) const {
  const int here = sched_getcpu();
  if (control_->processor.load(std::memory_order_relaxed) != here)
    control_->processor.store(here, std::memory_order_relaxed);
  return rank == any_source || control(rank).processor.load(std::memory_order_relaxed) == here ? 0 : spins_;
}

std::string Communicator::last_operation(int rank) const {
  if (rank == any_source) return "no message arrived";
  const Control& theirs = control(rank);
  const Slot* last = nullptr;
  for (const Slot& slot : theirs.slots) {
    if (slot.posted.load() != 0 && (last == nullptr || slot.posted.load() > last->posted.load())) last = &slot;
  }
  if (last == nullptr) return "it had not started any collective in this group";
  const bool done = theirs.finished.load() >= last->posted.load();
  return concat("its last collective in this group is ", launch::describe(copy_entry(last->entry)),
                done ? ", which it finished" : "");
}

void Communicator::throw_if_own_failed() const {
  if (control().state.load() == TeamState::failed) {
    throw Failure(control().failure.load(), concat("the group failed before: ", text_of(control().reason)));
  }
}

void Communicator::throw_if_failed() const {
  throw_if_own_failed();
  for (int r = 0; r < size(); ++r) throw_if_failed(r);
}

void Communicator::throw_if_failed(int rank) const {
  const Control& theirs = control(rank);
  if (theirs.state.load() == TeamState::failed)
    throw Failure(theirs.failure.load(), concat(member_text(rank), " failed: ", text_of(theirs.reason)));
}

void Communicator::check_members(int for_rank, const Wait& wait) const {
  // Check before the other ranks' state: they fail because this rank has left.
  if (control().state.load() == TeamState::closed) throw Failure(Code::shut_down, "the group was closed by shutdown()");
  throw_if_failed();
  // Check this first: a member that found a deadlock, in any group, may have left since.
  for (const Member& member : members_) {
    if (member.segment && member.segment->header().stuck.load() != 0) {
      pass_on(own_.header(), member.segment->header());
    }
  }
  check_peer(for_rank, wait);
  for (int r = 0; r < size(); ++r) {
    const Member& member = members_[static_cast<std::size_t>(r)];
    // After leaving in an orderly way, a rank may end its process; this matters only to a rank that waits for it.
    if (!member.segment || (r != for_rank && member.control->state.load() == TeamState::closed)) continue;
    if (!member.segment->alive()) {
      throw Failure(Code::peer_lost, concat(member_text(r), " is gone; ", last_operation(r)));
    }
  }
  if (options_.stop_requested) {
    if (const auto reason = options_.stop_requested()) {
      tell_why_stuck(own_.header(), *reason);
      throw Failure(Code::aborted, *reason);
    }
  }
}

void Communicator::check_peer(int for_rank, const Wait& wait) const {
  const auto has_left = [&](int r) { return control(r).state.load() == TeamState::closed; };
  if (for_rank == any_source) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && !has_left(r)) return;
    }
    throw Failure(Code::peer_lost, concat("all other ranks left the group (shutdown) while this rank waits for any of ",
                                          "them ", wait.what));
  }
  if (!has_left(for_rank)) return;
  throw Failure(Code::peer_lost,
                concat(member_text(for_rank), " left the group (shutdown) while this rank waits for it ", wait.what,
                       "; ", last_operation(for_rank), ". ", fewer_batches_hint));
}

Communicator::Clock::time_point Communicator::deadline(const Wait& wait) const {
  return wait.begin + (wait.timeout.count() > 0 ? wait.timeout : options_.timeout);
}

void Communicator::look(int for_rank, const Wait& wait) const {
  check_members(for_rank, wait);
  const auto now = Clock::now();
  if (now < deadline(wait)) return;
  throw Failure(Code::timeout,
                concat("waited ", format_real(std::chrono::duration<double>(now - wait.begin).count(), 3), " s for ",
                       member_text(for_rank), " ", wait.what, " (timeout); ", last_operation(for_rank)));
}

void Communicator::fail(const std::string& reason, Code code) {
  const std::lock_guard lock(fail_mutex_);
  if (control_->state.load() != TeamState::open) return;
  copy_text(control_->reason, reason);
  control_->failure.store(code);
  control_->state.store(TeamState::failed);
  control_->pulse.ring();
  for (const Member& member : members_) member.control->bell.ring();
}

void Communicator::close() {
  const std::lock_guard lock(fail_mutex_);
  if (control_->state.load() == TeamState::open) control_->state.store(TeamState::closed);
  control_->pulse.ring();
  for (const Member& member : members_) member.control->bell.ring();
}

void Communicator::note_thread() const {
  WaitRecord& waiting = own_.header().waiting;
  const int self = thread_id();
  const std::int32_t known = waiting.starter.load(std::memory_order_relaxed);
  if (known == self || known < 0) return;
  std::int32_t none = 0;
  if (!waiting.starter.compare_exchange_strong(none, self) && none != self) waiting.starter.store(-1);
}

bool Communicator::is_starter() const {
  return own_.header().waiting.starter.load(std::memory_order_relaxed) == thread_id();
}

Communicator::Sleeping::Sleeping(Communicator& communicator, int for_rank, const Wait& wait)
    : communicator_(communicator), for_rank_(for_rank), wait_(wait), next_look_(Clock::now() + slice_limit) {}

Communicator::Sleeping::~Sleeping() {
  if (shown_) communicator_.own_.header().waiting.turn.fetch_add(1);
}

std::chrono::nanoseconds Communicator::Sleeping::slice() {
  const auto left = std::min(communicator_.deadline(wait_), wait_.until) - Clock::now();
  return std::clamp<nanoseconds>(duration_cast<nanoseconds>(left), nanoseconds(1), slice_limit);
}

// Publishes what this process is blocked in; of several waiting threads, only the first can.
void Communicator::Sleeping::show() {
  WaitRecord& record = communicator_.own_.header().waiting;
  std::uint64_t turn = record.turn.load();
  if (turn % 2 != 0) return;
  record.for_pid.store(communicator_.members_[static_cast<std::size_t>(for_rank_)].pid);
  record.rank = communicator_.options_.job_rank;
  record.entry = wait_.entry;
  shown_ = record.turn.compare_exchange_strong(turn, turn + 1);
}

void Communicator::Sleeping::look() {
  const bool left = for_rank_ != any_source && communicator_.control(for_rank_).state.load() != TeamState::open;
  const auto now = Clock::now();
  if (now < next_look_ && now < communicator_.deadline(wait_) && !left) return;
  next_look_ = now + slice_limit;
  communicator_.look(for_rank_, wait_);
  if (for_rank_ == any_source) return;
  if (wait_.starter_blocked != nullptr && wait_.starter_blocked->load()) {
    if (!shown_) show();
    if (!shown_) return;
    communicator_.own_.header().waiting.looks.fetch_add(1);
    look_for_ring();
  }
}

// Follows the chain of waiting processes. If it leads back here and nothing in it moves for a while, it is a deadlock.
// On a busy machine, a standstill alone proves nothing, because a process that was woken may not have run yet. So each
// member must also have looked at least twice more and found nothing to do.
void Communicator::Sleeping::look_for_ring() {
  if (communicator_.own_.header().waiting.starter.load() < 0) return;
  const pid_t self = getpid();
  std::vector<std::uint64_t> turns, looks;
  std::string text = concat("rank ", communicator_.options_.job_rank, " waits in ", launch::describe(wait_.entry));
  pid_t pid = communicator_.members_[static_cast<std::size_t>(for_rank_)].pid;
  for (int length = 0; length < max_ranks && pid != self; ++length) {
    const auto peer = known_peer(pid);
    if (!peer) return;
    if (peer->header().stuck.load() != 0) pass_on(communicator_.own_.header(), peer->header());
    const WaitRecord& record = peer->header().waiting;
    const std::uint64_t turn = record.turn.load();
    if (turn % 2 == 0 || record.starter.load() < 0) return;
    turns.push_back(turn);
    looks.push_back(record.looks.load());
    text += concat("; rank ", record.rank, " (pid ", pid, ") in ", launch::describe(copy_entry(record.entry)));
    pid = record.for_pid.load();
  }
  if (pid != self || turns.empty()) return;
  if (turns != ring_seen_) {
    ring_seen_ = std::move(turns);
    looks_seen_ = std::move(looks);
    still_ = 0;
  } else if (++still_ > still_looks && std::equal(looks.begin(), looks.end(), looks_seen_.begin(),
                                                  [](auto now, auto then) { return now >= then + 2; })) {
    text = concat("the ranks wait for each other: ", text,
                  ". They started different operations, or the same operations in a different order.");
    tell_why_stuck(communicator_.own_.header(), text);
    throw Failure(Code::mismatch, text);
  }
}

}  // namespace tessera::wire::shm
