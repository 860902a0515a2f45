#include <tessera/launch/agent/watchdog.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <cerrno>
#include <cstring>

namespace tessera::launch {

namespace {

/// At least the maximum number of ranks per host (launcher.cpp). The table has a fixed size because the watchdog must
/// not allocate.
constexpr std::size_t max_groups = 4096;

struct Message {
  enum Kind : int { begins, ended, folder };
  Kind kind;
  pid_t group;     ///< begins, ended
  char path[256];  ///< folder
};

void pause_ms(long ms) noexcept {
  const timespec time{0, ms * 1'000'000};
  ::nanosleep(&time, nullptr);
}

/// Removes everything in a folder; async-signal-safe, so it does not use opendir(). Links are removed, never followed.
void empty_folder(int folder, int depth) noexcept {
  if (depth > 8) return;
  alignas(dirent64) char buffer[4096];
  for (bool removed = true; removed;) {
    removed = false;
    ::lseek(folder, 0, SEEK_SET);
    for (;;) {
      const long got = ::syscall(SYS_getdents64, folder, buffer, sizeof buffer);
      if (got <= 0) break;
      for (long at = 0; at < got;) {
        const auto* const entry = reinterpret_cast<const dirent64*>(buffer + at);
        at += entry->d_reclen;
        const char* const name = entry->d_name;
        if (name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0))) continue;
        if (::unlinkat(folder, name, 0) == 0) {
          removed = true;
          continue;
        }
        const int below = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0) continue;
        empty_folder(below, depth + 1);
        ::close(below);
        removed |= ::unlinkat(folder, name, AT_REMOVEDIR) == 0;
      }
    }
  }
}

void remove_folder(const char* path) noexcept {
  const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  empty_folder(folder, 0);
  ::close(folder);
  ::rmdir(path);
}

void send_message(int fd, const Message& message) noexcept {
  while (::send(fd, &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

/// Runs in a process forked from one that may have threads: async-signal-safe calls only.
[[noreturn]] void watch(int socket) noexcept {
  pid_t groups[max_groups];
  char owned[sizeof Message::path] = {};
  std::size_t count = 0;
  ::setsid();  // Ctrl-C and terminal hang-ups must not reach it
  ::prctl(PR_SET_NAME, "tessera-guard");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // Closes the inherited output of the agent, so that a reader waiting for its end does not wait for the watchdog.
  ::dup2(socket, 0);
  ::close_range(1, ~0U, 0);
  for (;;) {
    Message message{};
    const ssize_t got = ::recv(0, &message, sizeof message, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) break;  // the agent is gone
    if (message.kind == Message::folder) {
      std::memcpy(owned, message.path, sizeof owned);
      continue;
    }
    if (message.kind == Message::begins) {
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
  if (owned[0] == 0) ::_exit(0);
  // A dying rank may still be writing. A zombie that its parent does not reap stays forever, so the wait is limited.
  for (std::size_t i = 0, tries = 0; i < count; ++i) {
    for (; tries < 200 && ::kill(-groups[i], 0) == 0; ++tries) pause_ms(10);
  }
  remove_folder(owned);
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
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no signal handler of this process runs in the child
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

void Watchdog::forget(pid_t group) const noexcept { send_message(socket_.get(), {Message::ended, group, {}}); }

void Watchdog::own_folder(const std::string& path) const noexcept {
  Message message{Message::folder, 0, {}};
  if (path.size() < sizeof message.path) path.copy(message.path, path.size());
  send_message(socket_.get(), message);
}

void announce_group(int announce_fd, pid_t group) noexcept { send_message(announce_fd, {Message::begins, group, {}}); }

}  // namespace tessera::launch
