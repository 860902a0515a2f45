#pragma once
/// \file
/// Real ranks for tests: forks processes after LibTorch is loaded (no exec, no Python), joins them through a store
/// socket that is bound before the fork, runs a body in each, and turns their exceptions and gtest failures into
/// failures of the parent's test that name the rank.
///
///   run_ranks(4, [](comm::World& world) {
///     at::Tensor t = at::ones({3});
///     world.group().all_reduce(t).wait();
///     EXPECT_EQ(t[0].item<float>(), 4) << "shown by the parent, with the rank";
///   });
///
/// Rules. The parent must stay single-threaded, or a forked rank would hang at its first parallel operation: this
/// header sets the parent's LibTorch to one thread before main(), and run_ranks refuses to fork when there are others.
/// Ranks run with OMP_NUM_THREADS (1 when unset). A reference computed in one process may run in the parent, or in
/// run_ranks(1, ...). The parent itself must not be inside tessera::init(). Nothing outlives the call: all ranks are
/// killed at the time limit, and when the parent dies. Times are those of a quiet machine (patience(), stopwatch.h): a
/// test that ranks end before a time-out sets the time-out to minutes and expects the end within seconds.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/comm/world.h>
#include <tests/own_folder.h>
#include <tests/stopwatch.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace tessera::testing {

/// How one rank ended.
struct RankOutcome {
  struct Failure {
    std::string file;
    int line = 0;
    std::string text;
  };
  bool ok = false;  ///< body returned, no failed expectation, orderly shutdown, exit status 0
  /// Still running at the time limit, or too long after another rank had failed.
  bool killed_by_harness = false;
  std::string error;  ///< what() of an exception thrown by the body, or "killed by signal 9 (Killed)"; "" when ok
  std::vector<Failure> failures;    ///< failed gtest expectations
  std::vector<std::string> posted;  ///< texts the body passed to post(), in order
};

struct RankOptions {
  double timeout_s = 60;  ///< for the whole run, scaled on a busy machine; then every rank is killed
  /// init.timeout_seconds, which is not scaled, is lowered to 0.6 x the time limit, so that errors arrive before the
  /// kill.
  InitOptions init = {};
  bool end_after_failure = true;  ///< kill the others some time after the first rank failed (false: at the time limit)
  double grace_s = 3;             ///< that time, scaled on a busy machine
  /// Called in each rank before tessera::init, to set variables or inject a fault.
  std::function<void(launch::RankEnvironment&, InitOptions&)> before_init;
};

namespace detail {

inline const bool parent_is_serial = (at::set_num_threads(1), true);

inline int& report_fd() {
  static int fd = -1;
  return fd;
}

// A record in the pipe: type, length, bytes.
inline void report(char type, const std::string& text) {
  std::string record(1, type);
  const auto length = static_cast<std::uint32_t>(text.size());
  record.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
  for (std::size_t at = 0; at < record.size();) {
    const ssize_t n = write(report_fd(), record.data() + at, record.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(98);
    at += static_cast<std::size_t>(n);
  }
}

class ReportingListener final : public ::testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    failed = true;
    const char* file = result.file_name() == nullptr ? "" : result.file_name();
    report('F', concat(file, '\n', result.line_number(), '\n', result.message()));
  }
  bool failed = false;
};

[[noreturn]] inline void child_main(launch::RankEnvironment environment, RankOptions options,
                                    const std::function<void(comm::World&)>& body) {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* listener = new ReportingListener;  // owned by gtest, which this process never tears down
  listeners.Append(listener);
  setenv("OMP_NUM_THREADS", "1", /*overwrite=*/0);
  int status = 1;
  try {
    if (options.before_init) options.before_init(environment, options.init);
    comm::World& world = tessera::init(environment, options.init);
    body(world);
    report('D', "");
    tessera::shutdown();
    status = listener->failed ? 1 : 0;
  } catch (const std::exception& error) {
    report('E', error.what());
  } catch (...) {
    report('E', "an exception that is no std::exception");
  }
  std::fflush(nullptr);
  _exit(status);  // not exit(): the parent's atexit handlers and gtest's report must not run here
}

inline int thread_count() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return 1;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

// A listening socket on a free port of 127.0.0.1.
inline int listening_socket(int& port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  TESSERA_CHECK(fd >= 0, "socket: ", std::strerror(errno));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  TESSERA_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(fd, 128) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0,
                "bind 127.0.0.1: ", std::strerror(errno));
  port = ntohs(address.sin_port);
  return fd;
}

// The parent's view of one rank.
struct Child {
  pid_t pid = -1;
  int fd = -1;  // read end of its pipe; -1 after its end
  bool body_done = false;
  std::string unread;  // bytes of an unfinished record
  RankOutcome outcome;

  void take_records() {
    while (unread.size() >= 5) {
      std::uint32_t length = 0;
      std::memcpy(&length, unread.data() + 1, sizeof length);
      if (unread.size() < 5 + std::size_t{length}) return;
      const char type = unread[0];
      const std::string text = unread.substr(5, length);
      unread.erase(0, 5 + std::size_t{length});
      if (type == 'D') body_done = true;
      if (type == 'P') outcome.posted.push_back(text);
      if (type == 'E') outcome.error = text;
      if (type == 'F') {
        const auto first = text.find('\n'), second = text.find('\n', first + 1);
        outcome.failures.push_back(
            {text.substr(0, first), std::atoi(text.c_str() + first + 1), text.substr(second + 1)});
      }
    }
  }

  // Reads the available records; at the end of the pipe, collects the exit status.
  void read_pipe() {
    char buffer[65536];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) return;
    if (n > 0) {
      unread.append(buffer, static_cast<std::size_t>(n));
      take_records();
      return;
    }
    close(fd);
    fd = -1;
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      if (!outcome.killed_by_harness) outcome.error = concat("killed by signal ", signal, " (", strsignal(signal), ")");
    } else if (WEXITSTATUS(status) != 0 && outcome.error.empty() && outcome.failures.empty()) {
      outcome.error = concat("exit status ", WEXITSTATUS(status));
    }
    outcome.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0 && body_done && outcome.failures.empty();
  }

  bool failed() const { return !outcome.error.empty() || (fd < 0 && !outcome.ok); }
};

}  // namespace detail

/// Inside a body: sends text to the parent, which returns it in RankOutcome::posted.
inline void post(const std::string& text) { detail::report('P', text); }

/// Runs `body` on n ranks and returns how each ended, without failing the test. For tests of failures.
inline std::vector<RankOutcome> run_ranks_outcomes(int n, const std::function<void(comm::World&)>& body,
                                                   RankOptions options = {}) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::duration;
  TESSERA_CHECK(detail::thread_count() == 1, "run_ranks: the test process already has ", detail::thread_count(),
                " threads, so forked ranks could hang; run what starts threads inside run_ranks(1, ...).");
  const double longer = patience(1), time_limit_s = longer * options.timeout_s;
  options.init.timeout_seconds = std::min(options.init.timeout_seconds, 0.6 * time_limit_s);
  launch::RankEnvironment environment;
  environment.world_size = environment.local_world_size = n;
  environment.launcher = "test";
  const int store_fd = n > 1 ? detail::listening_socket(environment.master_port) : -1;
  std::fflush(nullptr);  // otherwise each rank would print the parent's buffered output again
  const pid_t parent = getpid();
  std::vector<detail::Child> children(static_cast<std::size_t>(n));
  for (int rank = 0; rank < n; ++rank) {
    int ends[2];
    TESSERA_CHECK(pipe(ends) == 0, "pipe: ", std::strerror(errno));
    const pid_t pid = fork();
    TESSERA_CHECK(pid >= 0, "fork: ", std::strerror(errno));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(99);
      close(ends[0]);
      detail::report_fd() = ends[1];
      environment.rank = environment.local_rank = rank;
      if (rank == 0) {
        environment.store_fd = store_fd;
      } else if (store_fd >= 0) {
        close(store_fd);
      }
      detail::child_main(environment, options, body);
    }
    close(ends[1]);
    children[static_cast<std::size_t>(rank)].pid = pid;
    children[static_cast<std::size_t>(rank)].fd = ends[0];
  }
  if (store_fd >= 0) close(store_fd);

  Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(duration<double>(time_limit_s));
  bool failure_seen = false;
  while (true) {
    std::vector<pollfd> waiting;
    bool any_failed = false, all_reported = true;
    for (const detail::Child& child : children) {
      if (child.fd >= 0) waiting.push_back({child.fd, POLLIN, 0});
      any_failed = any_failed || child.failed();
      all_reported = all_reported && (child.fd < 0 || child.body_done || child.failed());
    }
    if (waiting.empty()) break;
    // Ranks that have finished wait in shutdown() for ranks that will never arrive.
    const bool nothing_to_wait_for = any_failed && (options.end_after_failure || all_reported);
    if (nothing_to_wait_for && !failure_seen) {
      failure_seen = true;
      const duration<double> grace(longer * (all_reported ? 0.2 : options.grace_s));
      deadline = std::min(deadline, Clock::now() + std::chrono::duration_cast<Clock::duration>(grace));
    }
    const double left = duration<double>(deadline - Clock::now()).count();
    if (left <= 0) {
      for (detail::Child& child : children) {
        if (child.fd < 0) continue;
        child.outcome.killed_by_harness = true;
        kill(child.pid, SIGKILL);
      }
      deadline = Clock::now() + std::chrono::hours(1);
      continue;
    }
    poll(waiting.data(), waiting.size(), static_cast<int>(std::min(left * 1000 + 1, 1000.0)));
    for (const pollfd& ready : waiting) {
      if (ready.revents == 0) continue;
      for (detail::Child& child : children) {
        if (child.fd == ready.fd) child.read_pipe();
      }
    }
  }
  std::vector<RankOutcome> outcomes;
  for (detail::Child& child : children) outcomes.push_back(std::move(child.outcome));
  return outcomes;
}

/// Runs `body` on n ranks; every failure of a rank becomes a failure of the calling test. Returns the outcomes (for
/// `posted`).
inline std::vector<RankOutcome> run_ranks(int n, const std::function<void(comm::World&)>& body, RankOptions options) {
  std::vector<RankOutcome> outcomes = run_ranks_outcomes(n, body, options);
  bool explained = false;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const RankOutcome& outcome = outcomes[rank];
    for (const RankOutcome::Failure& failure : outcome.failures) {
      ADD_FAILURE_AT(failure.file.c_str(), failure.line) << "rank " << rank << " of " << n << ": " << failure.text;
      explained = true;
    }
    if (!outcome.error.empty()) {
      ADD_FAILURE() << "rank " << rank << " of " << n << ": " << outcome.error;
      explained = true;
    }
  }
  for (std::size_t rank = 0; rank < outcomes.size() && !explained; ++rank) {
    if (!outcomes[rank].ok)
      ADD_FAILURE() << "rank " << rank << " of " << n << " did not finish within " << options.timeout_s
                    << " s of a quiet machine";
  }
  return outcomes;
}

inline std::vector<RankOutcome> run_ranks(int n, const std::function<void(comm::World&)>& body, double timeout_s = 60) {
  RankOptions options;
  options.timeout_s = timeout_s;
  return run_ranks(n, body, options);
}

}  // namespace tessera::testing
