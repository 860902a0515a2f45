#include <tessera/launch/agent/process.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/watchdog.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

extern char** environ;

namespace tessera::launch {

namespace {

struct Pipe {
  UniqueFd read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw InputError(
        concat("cannot start a process: no pipe (", std::strerror(errno), "); raise the limit of open files"));
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Returns "NAME=value" strings: this process's environment with `changes` applied.
std::vector<std::string> merged_environment(const Environment& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool changed =
        std::any_of(changes.begin(), changes.end(), [&](const auto& change) { return change.first == name; });
    if (!changed) result.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) result.push_back(name + "=" + *value);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Everything the child needs between fork and exec, prepared in advance because only async-signal-safe calls are
/// allowed there.
struct ChildPlan {
  const char* path;
  char* const* argv;
  char* const* envp;
  int stdin_fd, stdout_fd, stderr_fd, error_fd, announce_fd;  // stdout/stderr -1: inherited
  const std::vector<int>* inherited;
  pid_t parent;
};

[[noreturn]] void run_child(const ChildPlan& plan) noexcept {
  const auto fail = [&] {
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(plan.error_fd, &error, sizeof error);
    ::_exit(127);
  };
  if (::setpgid(0, 0) != 0) fail();
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail();
  if (::getppid() != plan.parent) ::_exit(127);  // the parent died before prctl(): nobody is left to inform
  if (plan.announce_fd >= 0) announce_group(plan.announce_fd, ::getpid());
  // The agent may block signals, and its parent may ignore them (a shell's background job): ranks start with the
  // defaults.
  for (int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGXFSZ}) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::dup2(plan.stdin_fd, 0) < 0) fail();
  if (plan.stdout_fd >= 0 && ::dup2(plan.stdout_fd, 1) < 0) fail();
  if (plan.stderr_fd >= 0 && ::dup2(plan.stderr_fd, 2) < 0) fail();
  for (int fd : *plan.inherited) {
    if (::fcntl(fd, F_SETFD, 0) != 0) fail();
  }
  ::execve(plan.path, plan.argv, plan.envp);
  fail();
  ::_exit(127);
}

/// Returns the errno of the child's failed exec, 0 when it succeeded.
int read_exec_error(int fd) {
  int error = 0;
  ssize_t got = 0;
  do got = ::read(fd, &error, sizeof error);
  while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

/// Reads the state letter and process group of /proc/PID/stat; false when the process is gone.
bool read_stat(const std::string& pid, char& state, pid_t& group) {
  std::ifstream in("/proc/" + pid + "/stat");
  std::string line;
  if (!std::getline(in, line)) return false;
  const auto name_end = line.rfind(')');  // the name may contain anything, including blanks and parentheses
  if (name_end == std::string::npos) return false;
  int parent = 0;
  return std::sscanf(line.c_str() + name_end + 1, " %c %d %d", &state, &parent, &group) == 3;
}

/// Reads the available bytes (at most a pipe's capacity, 1 MiB, since a writer may never pause); closes the pipe at its
/// end.
void drain(UniqueFd& pipe, std::string& into) {
  char buffer[1 << 16];
  for (std::size_t total = 0; pipe && total < (std::size_t{1} << 20);) {
    const ssize_t got = ::read(pipe.get(), buffer, sizeof buffer);
    if (got > 0) {
      total += static_cast<std::size_t>(got);
      into.append(buffer, static_cast<std::size_t>(got));
    } else if (got == 0) {
      pipe.reset();
    } else if (errno != EINTR) {
      if (errno != EAGAIN) pipe.reset();
      return;
    }
  }
}

}  // namespace

std::string find_program(const std::string& name) {
  const auto refuse = [&](const std::string& path, const std::string& why) {
    throw InputError(concat("cannot start '", name, "': ", path, " ", why));
  };
  const auto is_file = [](const std::string& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  };
  if (name.empty()) throw InputError("cannot start a program without a name");
  if (name.find('/') != std::string::npos) {
    struct stat info{};
    if (::stat(name.c_str(), &info) != 0) throw InputError(concat("cannot start '", name, "': ", std::strerror(errno)));
    if (!S_ISREG(info.st_mode)) refuse(name, "is not a file");
    if (::access(name.c_str(), X_OK) != 0) refuse(name, "is not executable (chmod +x, or name its interpreter)");
    return name;
  }
  const char* path = std::getenv("PATH");
  std::string not_executable;
  for (const std::string& folder : split(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path, ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (!is_file(candidate)) continue;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    not_executable = candidate;
  }
  if (!not_executable.empty()) refuse(not_executable, "is not executable");
  std::string hint;
  if (is_file("./" + name)) hint = concat("; for the file in this folder use ./", name);
  throw InputError(concat("cannot start '", name, "': no such program in PATH", hint));
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? concat("signal ", signal) : concat("SIG", name);
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) {
    const bool limit = WTERMSIG(status) == SIGXFSZ;
    return concat("was killed by ", signal_name(WTERMSIG(status)),
                  limit ? " (a file grew beyond the limit of this process: ulimit -f)" : "");
  }
  return concat("ended with exit code ", WEXITSTATUS(status));
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

Process::Process(const ProcessOptions& options) {
  if (options.command.empty()) throw InputError("cannot start a program: none was given");
  const std::string path = find_program(options.command.front());
  std::vector<std::string> arguments = options.command;
  std::vector<std::string> variables = merged_environment(options.environment);
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> envp = pointers_to(variables);

  Pipe out, err;
  if (options.capture_stdout) out = make_pipe();
  if (options.capture_stderr) err = make_pipe();
  Pipe failure = make_pipe();
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) throw InputError(concat("cannot start '", path, "': /dev/null: ", std::strerror(errno)));

  const int stdin_fd = options.stdin_fd >= 0 ? options.stdin_fd : null.get();
  const ChildPlan plan{path.c_str(),           argv.data(),     envp.data(),         stdin_fd,
                       out.write.get(),        err.write.get(), failure.write.get(), options.announce_fd,
                       &options.inherited_fds, ::getpid()};
  // Blocks signals: a handler of this process must not run in the child, where it would act on shared state (its
  // pipes).
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_ = ::fork();
  if (pid_ == 0) run_child(plan);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) {
    throw InputError(concat("cannot start '", path, "': ", std::strerror(fork_error),
                            "; start fewer processes, or raise the limit (ulimit -u)"));
  }
  ::setpgid(pid_, pid_);  // also done in the child: whichever comes first. Fails harmlessly after the child's exec.
  failure.write.reset();
  out.write.reset();
  err.write.reset();
  int error = read_exec_error(failure.read.get());
  if (error == 0) {
    pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));  // close-on-exec by itself
    if (!pidfd_) error = errno;
  }
  if (error != 0) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    reaped_ = true;
    throw InputError(concat("cannot start '", path, "': ", std::strerror(error),
                            error == ENOEXEC ? " (a script needs a first line such as #!/bin/sh)" : ""));
  }
  for (const Pipe* pipe : {&out, &err}) {
    if (pipe->read) ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
  }
  stdout_ = std::move(out.read);
  stderr_ = std::move(err.read);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      reaped_(other.reaped_),
      pidfd_(std::move(other.pidfd_)),
      stdout_(std::move(other.stdout_)),
      stderr_(std::move(other.stderr_)) {}

Process::~Process() {
  if (pid_ < 0 || reaped_) return;
  signal_group(SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Process::signal_group(int signal) const noexcept {
  if (pid_ > 0 && !reaped_) ::kill(-pid_, signal);
}

std::optional<int> Process::status() const {
  siginfo_t info{};
  int failed = 0;
  do failed = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  while (failed != 0 && errno == EINTR);
  TESSERA_CHECK(failed == 0, "waitid(", pid_, "): ", std::strerror(errno), "; is SIGCHLD ignored?");
  if (info.si_pid == 0) return std::nullopt;
  // Rebuilt in the form of wait(2); WNOWAIT keeps the child for reap().
  return info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
}

bool Process::group_is_alive() const {
  if (reaped_) return false;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return false;
  bool alive = false;
  while (const dirent* entry = alive ? nullptr : ::readdir(folder)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    char state = 0;
    pid_t group = 0;
    alive = read_stat(entry->d_name, state, group) && group == pid_ && state != 'Z' && state != 'X';
  }
  ::closedir(folder);
  return alive;
}

int Process::reap() {
  TESSERA_CHECK(!reaped_, "process ", pid_, " was reaped already");
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0) {
    TESSERA_CHECK(errno == EINTR, "waitpid(", pid_, "): ", std::strerror(errno));
  }
  reaped_ = true;
  return status;
}

Captured run_and_capture(const std::vector<std::string>& command, const Environment& environment,
                         double timeout_seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_seconds));
  ProcessOptions options;
  options.command = command;
  options.environment = environment;
  options.capture_stdout = options.capture_stderr = true;
  Process process(options);
  Captured result;
  while (!process.status()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count() + 1;
    if (left <= 0) {
      result.timed_out = true;
      break;
    }
    pollfd watched[] = {{process.pidfd(), POLLIN, 0},
                        {process.stdout_pipe().get(), POLLIN, 0},
                        {process.stderr_pipe().get(), POLLIN, 0}};
    ::poll(watched, 3, static_cast<int>(std::min<long long>(left, 60'000)));
    drain(process.stdout_pipe(), result.out);
    drain(process.stderr_pipe(), result.err);
  }
  process.signal_group(SIGKILL);
  result.exit_code = exit_code_of(process.reap());
  drain(process.stdout_pipe(), result.out);
  drain(process.stderr_pipe(), result.err);
  return result;
}

}  // namespace tessera::launch
