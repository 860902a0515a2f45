#include <tessera/launch/launcher.h>

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/guardian.h>
#include <tessera/launch/output.h>
#include <tessera/launch/ports.h>
#include <tessera/launch/process.h>
#include <tessera/launch/signal_queue.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <list>
#include <optional>

namespace tessera::launch {

namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr int max_processes = 4096;  // guardian.cpp holds as many groups
constexpr int stopped_code = static_cast<int>(ExitCode::stopped);

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

/// Each rank takes a pidfd and two pipes. The soft limit is raised only when needed: ranks inherit it.
void reserve_files(int num_processes) {
  const rlim_t needed = static_cast<rlim_t>(num_processes) * 3 + 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed) {
    throw InputError(concat(num_processes, " processes need about ", needed, " open files here, but the limit is ",
                            limit.rlim_max, " (ulimit -n)"));
  }
  limit.rlim_cur = needed;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Environment rank_variables(int rank, int port, const LaunchOptions& options) {
  const std::string world_size = std::to_string(options.num_processes);
  const std::string number = std::to_string(rank);
  Environment result = {{"RANK", number},
                        {"LOCAL_RANK", number},
                        {"WORLD_SIZE", world_size},
                        {"LOCAL_WORLD_SIZE", world_size},
                        {"GROUP_RANK", "0"},
                        {"GROUP_WORLD_SIZE", "1"},
                        {"NODE_RANK", "0"},
                        {"ROLE_RANK", number},
                        {"ROLE_WORLD_SIZE", world_size},
                        {"ROLE_NAME", "default"},
                        {"MASTER_ADDR", options.master_addr},
                        {"MASTER_PORT", std::to_string(port)},
                        {"TESSERA_LAUNCHER", "1"},
                        {"TESSERA_STORE_FD", std::nullopt},
                        // An agent around us (torchrun --no-python tessera launch ...) is not the ranks' agent.
                        {"TORCHELASTIC_USE_AGENT_STORE", std::nullopt},
                        {"TORCHELASTIC_RUN_ID", std::nullopt},
                        {"TORCHELASTIC_ERROR_FILE", std::nullopt}};
  if (options.threads_per_process > 0) {
    result.emplace_back("OMP_NUM_THREADS", std::to_string(options.threads_per_process));
  } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    result.emplace_back("OMP_NUM_THREADS", std::to_string(std::max(1, usable_cores() / options.num_processes)));
  }
  return result;
}

/// One rank: its process, and its output on the way to ours.
struct Rank {
  Rank(int number, const ProcessOptions& options, const std::string& out_prefix, OutputSink& out_sink,
       const std::string& err_prefix, OutputSink& err_sink)
      : number(number), process(options), out(out_prefix, out_sink), err(err_prefix, err_sink) {}

  int number;
  Process process;
  LinePrefixer out, err;
  std::optional<int> status;  ///< wait status of the process itself; what it started may still run
  std::optional<Time> kill_at;
  bool asked = false;  ///< it has been sent a signal that asks it to end
  bool gone = false;   ///< nothing of it is left
};

/// One run of a job: everything it holds is released, and everything it started ended, when it goes out of scope.
class Agent {
 public:
  Agent(const std::vector<std::string>& command, const LaunchOptions& options)
      : options_(options), out_(STDOUT_FILENO), err_(STDERR_FILENO) {
    find_program(command.at(0));
    reserve_files(options.num_processes);
    BoundSocket store;
    if (options.pass_store_socket) {
      store = listen_on(options.master_addr, options.master_port);
    } else {
      store.port = choose_port(options.master_addr, options.master_port);
    }
    for (int rank = 0; rank < options.num_processes; ++rank) start(rank, command, store);
  }

  ~Agent() {
    for (Rank& rank : ranks_) {
      if (!rank.gone) guardian_.forget(rank.process.pid());  // ~Process kills the group
    }
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  int run() {
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.gone; })) {
      wait();
      while (const int signal = signals_.next()) on_signal(signal);
      find_ended();
      for (Rank& rank : ranks_) {
        if (rank.gone) continue;
        if (rank.status && !rank.process.group_is_alive()) on_gone(rank);
        if (!rank.gone && rank.kill_at && Clock::now() >= *rank.kill_at) kill(rank);
      }
      out_.write_some();
      err_.write_some();
    }
    out_.flush(5);
    err_.flush(5);
    if (failure_) return *failure_;
    return stop_signal_ == SIGINT ? static_cast<int>(ExitCode::interrupted) : stop_code_;
  }

 private:
  void start(int number, const std::vector<std::string>& command, BoundSocket& store) {
    ProcessOptions process;
    process.command = command;
    process.environment = rank_variables(number, store.port, options_);
    process.announce_fd = guardian_.announce_fd();
    const bool raw = !options_.prefix_output || (number == 0 && !options_.prefix_rank0);
    process.capture_stdout = process.capture_stderr = !raw;
    if (number == 0 && store.fd) {
      process.environment.emplace_back("TESSERA_STORE_FD", std::to_string(store.fd.get()));
      process.inherited_fds.push_back(store.fd.get());
    }
    const std::string prefix = concat("[rank ", number, "] ");
    try {
      ranks_.emplace_back(number, process, line_start(STDOUT_FILENO) + prefix, out_, line_start(STDERR_FILENO) + prefix,
                          err_);
    } catch (const InputError& error) {
      throw InputError(concat("rank ", number, " of ", options_.num_processes, ": ", error.what()));
    }
    store.fd.reset();  // rank 0 has it; were it open here too, clients of a dead rank 0 would wait instead of failing
  }

  /// Where rank 0 draws a progress line on the terminal, other lines first clear it.
  std::string line_start(int fd) const {
    return options_.prefix_output && !options_.prefix_rank0 && ::isatty(fd) != 0 ? "\r\x1b[K" : "";
  }

  void say(const std::string& text) { err_.append(concat(line_start(STDERR_FILENO), "[agent] ", text, "\n")); }

  static std::string name(const Rank& rank) { return concat("rank ", rank.number, " (pid ", rank.process.pid(), ")"); }

  std::size_t running() const {
    return static_cast<std::size_t>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.gone && !rank.status; }));
  }

  /// Until something happens: a signal, output, the end of a rank, room for output, or a deadline.
  void wait() {
    std::vector<pollfd> watched = {{signals_.fd(), POLLIN, 0}};
    const auto watch = [&](int fd, short events) { watched.push_back({fd, events, 0}); };
    std::optional<Time> until;
    const auto not_after = [&](Time time) { until = until ? std::min(*until, time) : time; };
    if (!out_.empty()) watch(out_.fd(), POLLOUT);
    if (!err_.empty()) watch(err_.fd(), POLLOUT);
    for (Rank& rank : ranks_) {
      if (rank.gone) continue;
      if (rank.kill_at) not_after(*rank.kill_at);
      if (rank.status) {
        not_after(Clock::now() + std::chrono::milliseconds(20));  // the end of a process group cannot be polled for
      } else {
        watch(rank.process.pidfd(), POLLIN);
      }
      if (rank.process.stdout_pipe() && !out_.full()) watch(rank.process.stdout_pipe().get(), POLLIN);
      if (rank.process.stderr_pipe() && !err_.full()) watch(rank.process.stderr_pipe().get(), POLLIN);
    }
    int timeout = -1;
    if (until) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*until - Clock::now()).count() + 1;
      timeout = static_cast<int>(std::clamp<long long>(left, 0, 60'000));
    }
    ::poll(watched.data(), watched.size(), timeout);
  }

  /// Several ranks may have ended since the last look. A signal comes first then: its victim is the cause, and those
  /// whose connections to it broke ended with an exit code.
  void find_ended() {
    std::vector<Rank*> ended;
    for (Rank& rank : ranks_) {
      if (rank.gone) continue;
      read_output(rank, false);
      if (!rank.status && (rank.status = rank.process.status())) ended.push_back(&rank);
    }
    std::stable_partition(ended.begin(), ended.end(), [](const Rank* rank) { return WIFSIGNALED(*rank->status); });
    for (Rank* rank : ended) on_exit(*rank);
  }

  /// Passes on what a rank has written. `all`, once it has ended: whatever the pipe still holds (the kernel's limit is
  /// 1 MiB), however much our reader is behind; no more, since something it left running may write for ever.
  void read_output(Rank& rank, bool all) {
    read_pipe(rank.process.stdout_pipe(), rank.out, out_, all);
    read_pipe(rank.process.stderr_pipe(), rank.err, err_, all);
  }

  static void read_pipe(UniqueFd& pipe, LinePrefixer& lines, const OutputSink& sink, bool all) {
    char buffer[1 << 16];
    std::size_t total = 0;
    while (pipe && (all ? total < (std::size_t{1} << 20) : !sink.full())) {
      const ssize_t got = ::read(pipe.get(), buffer, sizeof buffer);
      if (got > 0) {
        total += static_cast<std::size_t>(got);
        lines.feed({buffer, static_cast<std::size_t>(got)});
      } else if (got < 0 && errno == EINTR) {
        continue;
      } else {
        if (got == 0 || errno != EAGAIN) pipe.reset();
        return;
      }
    }
  }

  void on_signal(int signal) {
    const Time now = Clock::now();
    if (stop_signal_ == 0 && !failure_) {
      stop_signal_ = signal;
      stopped_at_ = now;
      say(concat(signal_name(signal), " received; asking ", running(), running() == 1 ? " rank" : " ranks",
                 " to stop (SIGKILL after ", options_.stop_seconds, " s, or at the next signal)"));
      ask_all(signal == SIGINT ? SIGINT : SIGTERM, now + seconds(options_.stop_seconds));
      return;
    }
    // timeout(1) and some batch systems send the same request twice.
    if (stop_signal_ != 0 && now - stopped_at_ < std::chrono::milliseconds(500)) return;
    say(concat(signal_name(signal), " received again; killing the ranks"));
    for (Rank& rank : ranks_) {
      if (!rank.gone) kill(rank);
    }
  }

  void ask_all(int signal, Time kill_at) {
    for (Rank& rank : ranks_) {
      if (!rank.gone) ask(rank, signal, kill_at);
    }
  }

  void ask(Rank& rank, int signal, Time kill_at) {
    rank.process.signal_group(signal);
    rank.asked = true;
    rank.kill_at = rank.kill_at ? std::min(*rank.kill_at, kill_at) : kill_at;
  }

  void kill(Rank& rank) {
    rank.process.signal_group(SIGKILL);
    rank.asked = true;
    rank.kill_at.reset();
  }

  /// The process of a rank has ended (what it started may not have).
  void on_exit(Rank& rank) {
    read_output(rank, true);  // its last words before ours
    const int code = exit_code_of(*rank.status);
    if (code != 0 && !failure_) {
      if (stop_signal_ != 0) {
        if (stop_code_ == 0) stop_code_ = code;
        const bool expected = code == stopped_code || code == 130 || code == 128 + SIGTERM || !rank.kill_at;
        if (!expected) say(concat(name(rank), " ", describe_status(*rank.status), " while stopping"));
      } else if (options_.pass_store_socket && code == stopped_code) {
        stop_signal_ = SIGTERM;
        stop_code_ = code;
        stopped_at_ = Clock::now();
        ask_all(SIGTERM, stopped_at_ + seconds(options_.stop_seconds));
      } else {
        failure_ = code;
        const bool others = running() > 0;
        say(concat(name(rank), " ", describe_status(*rank.status), others ? "; ending the other ranks" : ""));
        // A quarter of the time is kept for the kernel: SIGKILL takes effect when it gets to it.
        ask_all(SIGTERM, Clock::now() + seconds(options_.grace_seconds * 0.75));
      }
    }
    // A rank that is over takes what it started with it.
    if (!rank.asked) ask(rank, SIGTERM, Clock::now() + seconds(options_.grace_seconds * 0.75));
  }

  void on_gone(Rank& rank) {
    read_output(rank, true);
    rank.out.finish();
    rank.err.finish();
    guardian_.forget(rank.process.pid());
    rank.process.reap();
    rank.gone = true;
  }

  const LaunchOptions options_;
  SignalQueue signals_;
  Guardian guardian_;
  OutputSink out_, err_;
  std::list<Rank> ranks_;
  std::optional<int> failure_;  ///< exit code of the first rank that failed
  int stop_signal_ = 0;         ///< the first request to stop
  int stop_code_ = 0;           ///< first exit code other than 0 after it
  Time stopped_at_{};
};

}  // namespace

int run(const std::vector<std::string>& command, const LaunchOptions& options) {
  if (command.empty()) throw InputError("nothing to launch: no program was given");
  if (options.num_processes < 1 || options.num_processes > max_processes) {
    throw InputError(
        concat("num_processes is ", options.num_processes, ": one host runs 1 to ", max_processes, " ranks"));
  }
  Agent agent(command, options);
  return agent.run();
}

}  // namespace tessera::launch
