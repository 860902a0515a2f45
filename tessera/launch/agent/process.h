#pragma once
/// \file
/// A child process as an object: it is started in its own process group, watched through a pidfd, read through pipes,
/// and ended together with all its descendants. Also run_and_capture: runs a program and returns its output (used by
/// tests).
///
/// Threads: start children from a thread that outlives them (the kernel ends a child when the *thread* that started it
/// exits, PR_SET_PDEATHSIG).

#include <sys/types.h>

#include <tessera/launch/agent/unique_fd.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::launch {

/// Variables added to, or replaced in, the environment of this process; nullopt removes one.
using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

struct ProcessOptions {
  std::vector<std::string> command;  ///< argv; command[0] is looked up in PATH unless it contains a slash
  Environment environment;
  bool capture_stdout = false;  ///< true: read its output from Process::stdout_pipe(); false: inherited
  bool capture_stderr = false;
  int stdin_fd = -1;               ///< becomes its standard input (not owned); -1: /dev/null
  std::vector<int> inherited_fds;  ///< kept open in the child under the same numbers
  int announce_fd = -1;            ///< a Watchdog's socket (watchdog.h), with which the child registers itself before
                                   ///< exec
};

/// The path for execve(). Throws InputError naming the program when it is missing, a folder or not executable.
std::string find_program(const std::string& name);

/// "was killed by SIGKILL", "ended with exit code 3", from a wait status.
std::string describe_status(int status);
/// 0-255 as a shell reports it: the exit code, or 128 + signal.
int exit_code_of(int status);
/// Returns "SIGTERM"; "signal 64" for a signal without a name.
std::string signal_name(int signal);

/// One running child. Its destructor kills the whole process group and reaps the child: nothing is left behind except
/// processes that deliberately moved to another session (setsid; orphans.h). The child gets SIGKILL if this process
/// dies. Its standard input is /dev/null: several ranks cannot share a terminal, and a background group that reads from
/// one is stopped.
class Process {
 public:
  /// Throws InputError naming the program when it cannot be started (missing, not executable, no more processes
  /// allowed).
  explicit Process(const ProcessOptions& options);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  pid_t pid() const noexcept { return pid_; }
  int pidfd() const noexcept { return pidfd_.get(); }   ///< readable (poll) once the child has exited
  UniqueFd& stdout_pipe() noexcept { return stdout_; }  ///< non-blocking read ends
  UniqueFd& stderr_pipe() noexcept { return stderr_; }

  /// Sends a signal to the child and everything in its process group. Has no effect once the child is reaped.
  void signal_group(int signal) const noexcept;
  /// The wait status once the child itself has exited. Does not reap it, so that its process id cannot be reused yet.
  std::optional<int> status() const;
  /// Whether any process of its group still runs (zombies do not count).
  bool group_is_alive() const;
  /// Reaps the child after it has exited and returns the wait status.
  int reap();

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  UniqueFd pidfd_, stdout_, stderr_;
};

struct Captured {
  int exit_code = 0;  ///< 128 + signal for a signal
  std::string out, err;
  bool timed_out = false;  ///< the program was killed after timeout_seconds
};

/// Runs a program to its end and returns its output. Processes that it leaves running in its process group are killed.
/// Throws InputError when it cannot be started.
Captured run_and_capture(const std::vector<std::string>& command, const Environment& environment = {},
                         double timeout_seconds = 60);

}  // namespace tessera::launch
