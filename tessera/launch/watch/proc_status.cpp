#include <tessera/launch/watch/proc_status.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace tessera::launch {
namespace {

/// The part of a stat file after the name ("pid (name) S ppid ..."): a name may contain blanks and parentheses.
std::string after_name(const std::string& stat) {
  const auto end = stat.rfind(')');
  return end == std::string::npos ? "" : stat.substr(end + 1);
}

std::vector<std::string> threads_of(pid_t pid) {
  std::vector<std::string> result;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(concat("/proc/", pid, "/task").c_str()), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') result.emplace_back(entry->d_name);
  }
  return result;
}

char thread_state(pid_t pid, const std::string& thread) {
  char state = '?';
  std::sscanf(after_name(read_file_or_empty(concat("/proc/", pid, "/task/", thread, "/stat"))).c_str(), " %c", &state);
  return state;
}

/// The second number of schedstat ("ran waited slices"), nanoseconds.
std::int64_t thread_cpu_wait_ns(pid_t pid, const std::string& thread) {
  long long waited = 0;
  std::sscanf(read_file_or_empty(concat("/proc/", pid, "/task/", thread, "/schedstat")).c_str(), "%*d %lld", &waited);
  return waited;
}

bool is_stop(char state) { return state == 'T' || state == 't'; }

}  // namespace

std::optional<ProcStatus> read_proc_status(pid_t pid) {
  const std::string stat = after_name(read_file_or_empty(concat("/proc/", pid, "/stat")));
  ProcStatus status;
  unsigned long user = 0, system = 0;
  if (std::sscanf(stat.c_str(), " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &status.state, &user, &system) !=
      3)
    return std::nullopt;
  status.cpu_ticks = static_cast<std::int64_t>(user + system);
  const std::string text = read_file_or_empty(concat("/proc/", pid, "/status"));
  if (const auto at = text.find("TracerPid:"); at != std::string::npos)
    status.traced = std::strtol(text.c_str() + at + 10, nullptr, 10) != 0;
  const bool runs = !is_stop(status.state) && status.state != 'Z' && status.state != 'X';
  // The first thread may sleep while another one runs or waits for a disk.
  for (const std::string& thread : threads_of(pid)) {
    const char state = thread_state(pid, thread);
    if (runs && (state == 'D' || (state == 'R' && status.state != 'D'))) status.state = state;
    status.cpu_wait_ns += thread_cpu_wait_ns(pid, thread);
  }
  return status;
}

std::string state_text(char state) {
  switch (state) {
    case 'R':
      return "R (running or waiting for a processor)";
    case 'S':
      return "S (sleeping)";
    case 'D':
      return "D (waits for a disk or a network file system)";
    case 'T':
      return "T (stopped by a signal)";
    case 't':
      return "t (stopped by a debugger)";
    case 'Z':
    case 'X':
      return concat(state, " (ended)");
    default:
      return std::string(1, state);
  }
}

std::string thread_overview(pid_t pid) {
  std::string result;
  for (const std::string& thread : threads_of(pid)) {
    const std::string folder = concat("/proc/", pid, "/task/", thread, "/");
    const std::string wchan = trim(read_file_or_empty(folder + "wchan")),
                      call = trim(read_file_or_empty(folder + "syscall"));
    const char state = thread_state(pid, thread);
    result += concat("thread ", thread, " '", trim(read_file_or_empty(folder + "comm")), "' ", state_text(state));
    if (!wchan.empty() && wchan != "0") result += concat(", sleeps in ", wchan);
    if (!call.empty()) result += concat(", system call ", split(call, ' ').front());
    result += "\n";
    if (state != 'D') continue;
    for (const std::string& line : split(read_file_or_empty(folder + "stack"), '\n')) {  // readable by root only
      if (!trim(line).empty()) result += concat("    ", trim(line), "\n");
    }
  }
  return result;
}

}  // namespace tessera::launch
