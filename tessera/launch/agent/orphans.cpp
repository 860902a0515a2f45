#include <tessera/launch/agent/orphans.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::launch {
namespace {

constexpr int most_rounds = 10;
constexpr std::chrono::seconds most_time{1};

/// The children of all threads of this process, zombies included: all processes in /proc whose parent we are.
std::set<pid_t> own_children() {
  std::set<pid_t> children;
  for (const std::string& name : list_folder("/proc")) {
    const auto pid = parse_int(name);
    if (!pid) continue;
    std::string stat;
    try {
      stat = read_file(path_join("/proc", concat(name, "/stat")));
    } catch (const Error&) {
      continue;  // it has exited in the meantime
    }
    // PID (NAME) STATE PARENT ...: the name may contain anything.
    const std::vector<std::string> fields = split(stat.substr(std::min(stat.rfind(')'), stat.size())), ' ');
    if (fields.size() > 2 && parse_int(fields[2]) == ::getpid()) children.insert(static_cast<pid_t>(*pid));
  }
  return children;
}

/// Whether this variable was in the process's initial environment.
bool has_variable(pid_t pid, const std::string& variable) {
  try {
    const std::vector<std::string> all = split(read_file(concat("/proc/", pid, "/environ")), '\0');
    return std::find(all.begin(), all.end(), variable) != all.end();
  } catch (const Error&) {
    return false;  // belongs to another user, or has exited
  }
}

}  // namespace

Orphans::Orphans(const std::string& job) : variable_("TESSERA_JOB=" + job) {
  ::prctl(PR_GET_CHILD_SUBREAPER, &former_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  before_ = own_children();
}

Orphans::~Orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, former_); }

void Orphans::collect(const std::set<pid_t>& own) {
  siginfo_t info{};
  // Children started by other threads of this program stay in its process group.
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0 &&
         !own.contains(info.si_pid) && !before_.contains(info.si_pid) && ::getpgid(info.si_pid) != ::getpgrp()) {
    ::waitpid(info.si_pid, nullptr, WNOHANG);
    info = {};
  }
}

int Orphans::end() {
  const auto deadline = std::chrono::steady_clock::now() + most_time;
  int ran = 0;
  for (int round = 0; round < most_rounds; ++round) {
    std::set<pid_t> left = own_children();
    for (const pid_t pid : before_) left.erase(pid);
    if (left.empty()) break;
    for (const pid_t pid : left) {
      siginfo_t info{};
      const bool over =
          ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
      if (!over && !has_variable(pid, variable_)) {
        before_.insert(pid);
        continue;
      }
      ran += over ? 0 : 1;
      if (!over) ::kill(pid, SIGKILL);
      pid_t collected = 0;
      while ((collected = ::waitpid(pid, nullptr, WNOHANG)) == 0 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (collected == 0) before_.insert(pid);
    }
  }
  return ran;
}

}  // namespace tessera::launch
