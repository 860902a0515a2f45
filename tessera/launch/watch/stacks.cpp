#include <tessera/launch/watch/stacks.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/affinity.h>
#include <tessera/launch/watch/proc_status.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace tessera::launch {
namespace {

constexpr std::size_t frames_per_thread = 40;
constexpr const char *whole_mark = "== with all symbols", *end_mark = "== end";

std::string find_debugger() {
  try {
    return find_program("gdb");
  } catch (const InputError&) {
    return "";
  }
}

void read_into(UniqueFd& pipe, std::string& text) {
  char buffer[1 << 14];
  while (pipe) {
    const ssize_t got = ::read(pipe.get(), buffer, sizeof buffer);
    if (got > 0) {
      text.append(buffer, static_cast<std::size_t>(got));
    } else {
      if (got == 0) pipe.reset();
      return;
    }
  }
}

/// Keeps gdb's lines "Thread 1 (...)" and "#0 ...", and drops its other output.
std::string frames_of(const std::string& output) {
  const auto whole = output.find(whole_mark), end = output.find(end_mark);
  const std::string part = end == std::string::npos ? output.substr(0, whole) : output.substr(whole);
  std::string result;
  for (const std::string& line : split(part, '\n')) {
    if (line.starts_with("Thread ") || line.starts_with("#")) result += line + "\n";
  }
  return result;
}

}  // namespace

StackDump::StackDump(const std::vector<Target>& targets, double seconds, const Watchdog& watchdog)
    : deadline_(std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                       std::chrono::duration<double>(seconds))),
      at_once_(std::max<std::size_t>(1, usable_cores().size())),
      debugger_(find_debugger()),
      watchdog_(&watchdog) {
  for (const Target& target : targets) all_.push_back({target, thread_overview(target.pid), {}, {}, {}, false, false});
  turn();
}

StackDump::~StackDump() {
  for (One& one : all_) finish(one);
}

void StackDump::start(One& one) {
  one.started = true;
  ProcessOptions options;
  // LibTorch's symbols alone take 5 s and half a gigabyte: first the stacks of all targets without them, then, if time
  // remains, the first target's again with them.
  const std::string stacks = concat("thread apply all backtrace ", frames_per_thread);
  options.command = {debugger_, "-nx", "-batch", "-p", std::to_string(one.target.pid)};
  for (const char* setting : {"set auto-load no", "set debuginfod enabled off", "set auto-solib-add off"})
    options.command.insert(options.command.end(), {"-iex", setting});
  options.command.insert(options.command.end(), {"-ex", "set pagination off"});
  for (const char* library : {"libc\\.so", "libstdc++", "libgomp", "libtessera", "libpython"})
    options.command.insert(options.command.end(), {"-ex", concat("sharedlibrary ", library)});
  std::vector<std::string> steps = {stacks};
  if (&one == &all_.front()) {
    steps.insert(steps.end(),
                 {concat("echo ", whole_mark, "\\n"), "sharedlibrary", stacks, concat("echo ", end_mark, "\\n")});
  }
  for (const std::string& step : steps) options.command.insert(options.command.end(), {"-ex", step});
  options.environment = {{"DEBUGINFOD_URLS", std::nullopt}};
  options.capture_stdout = options.capture_stderr = true;
  options.announce_fd = watchdog_->announce_fd();
  try {
    one.debugger.emplace_back(options);
  } catch (const InputError& error) {
    one.complaint = error.what();
    one.done = true;
  }
}

void StackDump::finish(One& one) {
  one.done = true;
  if (one.debugger.empty()) return;
  Process& process = one.debugger.front();
  process.signal_group(SIGKILL);
  watchdog_->forget(process.pid());
  process.reap();
  read_into(process.stdout_pipe(), one.frames);
  read_into(process.stderr_pipe(), one.complaint);
  one.debugger.clear();
}

void StackDump::watch(std::vector<pollfd>& descriptors) {
  for (One& one : all_) {
    for (Process& process : one.debugger) {
      descriptors.push_back({process.pidfd(), POLLIN, 0});
      if (process.stdout_pipe()) descriptors.push_back({process.stdout_pipe().get(), POLLIN, 0});
      if (process.stderr_pipe()) descriptors.push_back({process.stderr_pipe().get(), POLLIN, 0});
    }
  }
}

bool StackDump::turn() {
  const bool late = std::chrono::steady_clock::now() >= deadline_;
  std::size_t running = 0;
  for (One& one : all_) {
    if (one.done) continue;
    if (one.debugger.empty()) {
      if (debugger_.empty() || late) one.done = true;
      continue;
    }
    Process& process = one.debugger.front();
    read_into(process.stdout_pipe(), one.frames);
    read_into(process.stderr_pipe(), one.complaint);
    if (process.status() || late) {
      one.late = !process.status();
      finish(one);
    } else {
      ++running;
    }
  }
  for (One& one : all_) {
    if (one.done || one.started || running >= at_once_) continue;
    start(one);
    if (!one.done) ++running;
  }
  return std::all_of(all_.begin(), all_.end(), [](const One& one) { return one.done; });
}

std::vector<StackDump::Stacks> StackDump::take() {
  std::vector<Stacks> result;
  for (One& one : all_) {
    std::string frames = frames_of(one.frames);
    if (frames.empty()) {
      const std::vector<std::string> lines = split(trim(one.complaint), '\n');
      frames = debugger_.empty()
                   ? "no native stacks: gdb is not installed here\n"
                   : concat("no native stacks: gdb ",
                            one.late || lines.back().empty() ? "was too slow" : "reported: " + lines.back(), "\n");
    }
    result.push_back({one.target.rank, one.overview + frames});
  }
  return result;
}

}  // namespace tessera::launch
