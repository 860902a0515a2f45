/// \file
/// A rank without tensors, for tests of the agent: it takes its slot on the board, runs its heartbeat, and performs
/// steps of one "all_reduce" each, which completes when every rank of the host has started it (they see each other on
/// the board).
///
///   fake_rank [--steps N] [--step_ms M] [--victim R --at STEP --do ACTION [--generation G]]
///
/// ACTION, performed by the victim before its collective number STEP: kill (SIGKILL itself), segv, stop (SIGSTOP),
/// stop2s (stop for two seconds, then continue), stopearly (stop before it joins the board), stopleft (stop after it
/// has left; STEP does not count), spin (compute forever), sleep (sleep forever), lock=FILE (wait for the lock of that
/// file, trying ten times a second), exit (code 7), leave (code 0, as if finished), stopped (code 3, as after saving on
/// SIGTERM; the others save for half a second when they get SIGTERM), fail (report an error of its own on the board,
/// and exit shortly after its victims), refuse=MS (its input is invalid: it reports that after MS milliseconds and
/// never exits by itself; the others learn of it and exit at once with code 2), save10s (in state saving), skip (enter
/// a barrier instead). G: only in that generation (default 0); -1: in every one. A rank whose peer failed, or that the
/// agent asks to stop, reports it on the board and exits with code 1, like a real rank.

#include <tessera/base/clock.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/board.h>
#include <tessera/launch/watch/verdict.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::launch;
using std::chrono::milliseconds;

int number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

void pause(int ms) { std::this_thread::sleep_for(milliseconds(ms)); }

volatile std::sig_atomic_t asked_to_stop = 0;

class Rank {
 public:
  Rank() : board_(Board::open(number("TESSERA_BOARD_FD"))), number_(number("RANK")) {
    slot_ = &board_.slot(number_ - board_.header().first_rank);
    slot_->rank = number_;
    slot_->pid = ::getpid();
    slot_->generation = static_cast<std::uint32_t>(generation());
    slot_->heartbeat_ns = slot_->progress_ns = monotonic_ns();
    slot_->state = RankState::running;
    heart_ = std::jthread([slot = slot_](const std::stop_token& stop) {
      for (; !stop.stop_requested(); pause(20)) slot->heartbeat_ns = monotonic_ns();
    });
  }

  int rank() const { return number_; }
  static int generation() { return number("TESSERA_GENERATION"); }
  RankSlot& slot() { return *slot_; }

  Entry& begin(Op op) {
    const std::uint64_t id = slot_->next_entry.load();
    Entry& entry = slot_->ring[id % RankSlot::ring_size];
    entry = Entry{};
    entry.id = id;
    entry.sequence = id;
    entry.fingerprint = static_cast<std::uint64_t>(op);
    entry.numel = 1024;
    entry.group_size = board_.slots();
    entry.op = op;
    entry.start_ns = monotonic_ns();
    write_text(entry.dtype, "float32");
    write_text(entry.reduction, "sum");
    write_text(entry.group, "world");
    write_text(entry.tag, "bucket 3");
    slot_->next_entry = id + 1;
    return entry;
  }

  /// Returns false if a peer is gone or the agent asks to stop.
  bool collective(Op op) {
    Entry& entry = begin(op);
    const auto all_came = [&] {
      for (int i = 0; i < board_.slots(); ++i) {
        if (board_.slot(i).next_entry.load() <= entry.id) return false;
        if (board_.slot(i).ring[entry.id % RankSlot::ring_size].op != op) return false;
      }
      return true;
    };
    slot_->blocked_since_ns = monotonic_ns();
    slot_->blocked_in = entry.id + 1;
    auto unblock = [slot = slot_](void*) { slot->blocked_in = 0; };
    const std::unique_ptr<void, decltype(unblock)> blocked(slot_, unblock);
    while (!all_came()) {
      if (board_.header().stop.load() != 0) return false;
      if (refused()) {
        fail(failed_elsewhere, 2);
        ::_exit(2);
      }
      if (failed_peer() >= 0) return false;
      if (asked_to_stop != 0) save_and_stop();
      pause(1);
    }
    entry.end_ns = monotonic_ns();
    entry.status = Status::done;
    slot_->progress_ns = monotonic_ns();
    ++slot_->progress;
    return true;
  }

  /// A rank that failed, or that left before the current collective: real ranks see a broken connection.
  int failed_peer() const {
    for (int i = 0; i < board_.slots(); ++i) {
      const RankState state = board_.slot(i).state.load();
      const bool left = state == RankState::left && board_.slot(i).next_entry.load() < slot_->next_entry.load();
      if (&board_.slot(i) != slot_ && (state == RankState::failed || left)) return i;
    }
    return -1;
  }

  [[noreturn]] static void save_and_stop() {
    pause(500);
    std::puts("saved");
    std::fflush(stdout);
    ::_exit(3);
  }

  /// Whether a rank has refused its input: real ranks learn it from an agreement.
  bool refused() const {
    for (int i = 0; i < board_.slots(); ++i) {
      if (read_text(board_.slot(i).phase) == "refuses") return true;
    }
    return false;
  }

  void fail(const std::string& why, int exit_code = 1) {
    write_text(slot_->error, why);
    slot_->exit_code = exit_code;
    slot_->verdict_ns = monotonic_ns();
    slot_->state = RankState::failed;
    std::fprintf(stderr, "%s\n", why.c_str());
  }

  void end_step(int step, int step_ms) {
    slot_->step = step;
    slot_->p99_step_ns = slot_->step_ns = std::int64_t{step_ms} * 1'000'000;
    if (slot_->first_step_ns == 0) slot_->first_step_ns = monotonic_ns();
  }

 private:
  Board board_;
  int number_;
  RankSlot* slot_;
  std::jthread heart_;  // last, so that it stops before the board is destroyed
};

void stop_for_two_seconds() {
  const pid_t self = ::getpid();
  if (::fork() == 0) {
    ::setpgid(0, 0);  // else it would be stopped with its parent's group
    ::usleep(50'000);
    ::kill(self, SIGSTOP);
    ::sleep(2);
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  pause(200);
  ::wait(nullptr);
}

/// Returns true if the step should continue.
bool act(Rank& rank, const std::string& action) {
  std::printf("victim %d %s\n", ::getpid(), action.c_str());
  std::fflush(stdout);
  if (action == "kill") ::raise(SIGKILL);
  if (action == "segv") {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would turn it into an exit code
    ::raise(SIGSEGV);
  }
  if (action == "stop") ::raise(SIGSTOP);
  if (action == "stop2s") stop_for_two_seconds();
  if (action == "exit") ::_exit(7);
  if (action == "leave") {
    rank.slot().state = RankState::left;
    ::_exit(0);
  }
  if (action == "stopped") ::_exit(3);
  if (action == "fail") {
    rank.fail("step 3: the loss is not a number");
    pause(150);
    ::_exit(1);
  }
  if (action.starts_with("refuse=")) {
    ::signal(SIGTERM, SIG_DFL);
    write_text(rank.slot().phase, "refuses");
    pause(std::atoi(action.c_str() + 7));
    rank.fail("--train_file: there is no file text.txt", 2);
    for (;;) pause(1000);
  }
  if (action == "spin") {
    write_text(rank.slot().phase, "forward");
    for (std::atomic<std::uint64_t> count = 0;;) ++count;
  }
  if (action == "sleep") write_text(rank.slot().phase, "forward");
  while (action == "sleep") pause(1000);
  if (action.starts_with("lock=")) {
    const int fd = ::open(action.c_str() + 5, O_RDWR | O_CLOEXEC);
    struct flock lock{};
    lock.l_type = F_WRLCK;
    write_text(rank.slot().phase, "making tokens");
    while (::fcntl(fd, F_OFD_SETLK, &lock) != 0) pause(100);
    ::close(fd);
  }
  if (action == "save10s") {
    rank.slot().state = RankState::saving;
    pause(10'000);
    rank.slot().state = RankState::running;
  }
  if (action == "skip" && !rank.collective(Op::barrier)) ::_exit(1);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGTERM, SIG_IGN);  // like a trainer that finishes its step first
  std::map<std::string, std::string> given = {{"--steps", "1000000"}, {"--step_ms", "10"}, {"--victim", "-1"},
                                              {"--at", "5"},          {"--do", ""},        {"--generation", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  if (given["--do"] == "stopped") ::signal(SIGTERM, [](int) { asked_to_stop = 1; });
  const auto value = [&](const char* name) { return std::atoi(given.at(name).c_str()); };
  const bool victim = number("RANK") == value("--victim");
  if (victim && given["--do"] == "stopearly") ::raise(SIGSTOP);
  Rank rank;
  std::printf("begin %d generation %d\n", ::getpid(), Rank::generation());
  std::fflush(stdout);
  const bool armed = value("--generation") < 0 || value("--generation") == Rank::generation();
  for (int step = 1; step <= value("--steps"); ++step) {
    if (armed && victim && step == value("--at")) act(rank, given["--do"]);
    pause(value("--step_ms"));
    if (!rank.collective(Op::all_reduce)) {
      const int peer = rank.failed_peer();
      rank.fail(peer >= 0 ? concat("all_reduce: rank ", peer, " is gone") : "the launcher ends the job");
      return 1;
    }
    rank.end_step(step, value("--step_ms"));
  }
  rank.slot().state = RankState::left;
  if (victim && given["--do"] == "stopleft") ::raise(SIGSTOP);
  std::printf("done generation %d\n", Rank::generation());
  return 0;
}
