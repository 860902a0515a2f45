#include <tessera/launch/agent/watchdog.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <cerrno>
#include <cstring>

namespace tessera::launch {

namespace {

/// More ranks than one host is allowed to have (launcher.cpp); a fixed table, because the watchdog must not allocate.
constexpr std::size_t max_groups = 4096;

struct Message {
  pid_t group;
  bool begin;  ///< false: the group has ended
};

void send_message(int fd, Message message) noexcept {
  while (::send(fd, &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

/// Forked from a process that may have threads: async-signal-safe calls only.
[[noreturn]] void watch(int socket) noexcept {
  pid_t groups[max_groups];
  std::size_t count = 0;
  ::setsid();  // neither Ctrl-C nor the end of a terminal is meant for it
  ::prctl(PR_SET_NAME, "tessera-guard");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // Whoever waits for the end of the agent's output must not wait for the watchdog.
  ::dup2(socket, 0);
  ::close_range(1, ~0U, 0);
  for (;;) {
    Message message{};
    const ssize_t got = ::recv(0, &message, sizeof message, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) break;  // the agent is gone
    if (message.begin) {
      if (count < max_groups) groups[count++] = message.group;
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (groups[i] == message.group) {
        groups[i] = groups[--count];
        break;
      }
    }
  }
  for (std::size_t i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

Watchdog::Watchdog() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw InputError(
        concat("cannot start processes: no socket (", std::strerror(errno), "); raise the limit of open files"));
  }
  socket_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of ours runs in the copy
  pid_ = ::fork();
  if (pid_ == 0) watch(theirs.get());
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0)
    throw InputError(concat("cannot start processes: ", std::strerror(error), "; raise the limit (ulimit -u)"));
}

Watchdog::~Watchdog() {
  socket_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Watchdog::forget(pid_t group) const noexcept { send_message(socket_.get(), {group, false}); }

void announce_group(int announce_fd, pid_t group) noexcept { send_message(announce_fd, {group, true}); }

}  // namespace tessera::launch
