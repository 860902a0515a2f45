#pragma once
/// \file
/// Runs launch::run in a forked process whose output the test reads, while the job is running.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/agent/process.h>
#include <tests/own_folder.h>
#include <tests/stopwatch.h>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace tessera::launch {

using Strings = std::vector<std::string>;

/// Waits until `condition` holds; false after `seconds` (scaled on a busy machine).
template <class Condition>
bool eventually(const Condition& condition, double seconds = 20) {
  for (const testing::Stopwatch watch; watch.seconds() < watch.limit(seconds);) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

/// Whether a process exists and is not a zombie.
inline bool is_running(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line)) return false;
  const char state = line[line.rfind(')') + 2];
  return state != 'Z' && state != 'X';
}

/// The numbers after each `key` in `text`: pids_after("child 12\nchild 13", "child ") = {12, 13}.
inline std::vector<int> pids_after(const std::string& text, const std::string& key) {
  std::vector<int> result;
  for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    result.push_back(std::stoi(text.substr(at + key.size())));
  }
  return result;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class AgentUnderTest {
 public:
  AgentUnderTest(const Strings& command, const LaunchOptions& options) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) throw Error("pipe2");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      int code = 99;
      try {
        code = run(command, options);
      } catch (const Error& error) {
        ::dprintf(2, "%s\n", error.what());
        code = static_cast<int>(error.exit_code());
      }
      ::_exit(code);
    }
    ::close(out[1]);
    ::close(err[1]);
    out_.reset(out[0]);
    err_.reset(err[0]);
    ::fcntl(out[0], F_SETFL, O_NONBLOCK);
    ::fcntl(err[0], F_SETFL, O_NONBLOCK);
  }
  ~AgentUnderTest() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  AgentUnderTest(const AgentUnderTest&) = delete;
  AgentUnderTest& operator=(const AgentUnderTest&) = delete;

  int pid() const { return pid_; }
  const std::string& out() const { return result_.out; }
  const std::string& err() const { return result_.err; }
  void signal(int number) const { ::kill(pid_, number); }

  /// Reads until standard output contains `text` `count` times.
  bool wait_for(const std::string& text, int count, double seconds = 20) {
    return eventually(
        [&] {
          read_all();
          int seen = 0;
          for (auto at = result_.out.find(text); at != std::string::npos; at = result_.out.find(text, at + 1)) ++seen;
          return seen >= count;
        },
        seconds);
  }

  /// Reads until standard error contains `text`.
  bool wait_for_error(const std::string& text) {
    return eventually([&] {
      read_all();
      return contains(result_.err, text);
    });
  }

  /// Reads both pipes to the end (until no process holds them open) and waits for the agent.
  Captured finish(double seconds = 20) {
    result_.timed_out = !eventually(
        [&] {
          read_all();
          return !out_ && !err_;
        },
        seconds);
    if (result_.timed_out) ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    result_.exit_code = exit_code_of(status);
    return result_;
  }

 private:
  static void read_pipe(UniqueFd& pipe, std::string& into) {
    char buffer[1 << 16];
    while (pipe) {
      const ssize_t got = ::read(pipe.get(), buffer, sizeof buffer);
      if (got <= 0) {
        if (got == 0) pipe.reset();
        return;
      }
      into.append(buffer, static_cast<std::size_t>(got));
    }
  }
  void read_all() {
    read_pipe(out_, result_.out);
    read_pipe(err_, result_.err);
  }

  int pid_ = -1;
  UniqueFd out_, err_;
  Captured result_;
};

inline Captured run_agent(const Strings& command, const LaunchOptions& options) {
  return AgentUnderTest(command, options).finish();
}
inline Strings shell(const std::string& script) { return {"sh", "-c", script}; }

}  // namespace tessera::launch
