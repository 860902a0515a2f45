/// \file
/// tessera top: watches this user's running jobs on this host, or shows those of several hosts once. Torch-free.

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/config/resolve/command_flags.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/top/hosts.h>
#include <tools/tessera/top/screen.h>
#include <tools/tessera/top/snapshot.h>

#include <tessera/launch/agent/signal_queue.h>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera top [options]\n\n"
    "Shows your running jobs on this host, once a second: for each rank its step,\n"
    "speed, loss, memory, processor time, the share of time blocked in collectives,\n"
    "the seconds since its last heartbeat, what it is doing and its last collective.\n"
    "Ranks that are stopped, silent for 3 s, dead or failed are marked. q or Ctrl-C\n"
    "quits.\n\n"
    "  --once        print once as plain text and exit (the default when standard\n"
    "                output is not a terminal); cpu% and comm% count from the start\n"
    "  --json        print once as JSON and exit\n"
    "  --pid PID     only the job of this agent, or of this rank\n"
    "  --interval S  seconds between updates [1]\n"
    "  --hostfile FILE  once, on each host of this file (NAME slots=N), run\n"
    "                over ssh like tessera launch --hostfile; with --json one\n"
    "                object; exit code 1 when a host did not answer\n";

constexpr const char* no_jobs = "No job of tessera that you own is running on this host.";

void write_out(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

/// Terminal mode for drawing: alternate screen, no cursor, keys read unbuffered without echo. The destructor restores
/// it.
class FullScreen {
 public:
  FullScreen() {
    if (::isatty(STDIN_FILENO) != 0 && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);  // Ctrl-C arrives as a byte, Ctrl-Z is ignored
      raw.c_cc[VMIN] = 0;
      raw.c_cc[VTIME] = 0;
      keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
    }
    write_out("\x1b[?1049h\x1b[?25l");
  }
  ~FullScreen() {
    write_out("\x1b[?25h\x1b[?1049l");
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  bool keys() const { return keys_; }
  static ScreenSize size() {
    winsize window{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) return {80, 24};
    return {window.ws_col, window.ws_row};
  }
  /// Clears lines below the last one. Uses a single write to avoid flicker.
  static void show(const std::vector<std::string>& lines) {
    std::string text = "\x1b[H";
    for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
    write_out(text + "\x1b[J");
  }

 private:
  bool keys_ = false;
  termios before_{};
};

/// True if `q`, Ctrl-C or Ctrl-D was typed, or the terminal was closed.
bool leave_typed() {
  char typed[64];
  const ssize_t got = ::read(STDIN_FILENO, typed, sizeof typed);
  if (got < 0) return true;
  for (ssize_t i = 0; i < got; ++i)
    if (typed[i] == 'q' || typed[i] == 'Q' || typed[i] == 3 || typed[i] == 4) return true;
  return false;
}

std::string clock_text() {
  const time_t now = ::time(nullptr);
  tm local{};
  char text[16];
  return ::localtime_r(&now, &local) != nullptr && ::strftime(text, sizeof text, "%H:%M:%S", &local) > 0 ? text : "";
}

std::vector<std::string> frame(const Snapshot& snapshot, ScreenSize size, bool colours) {
  std::size_t ranks = 0;
  for (const JobView& job : snapshot.jobs) ranks += job.ranks.size();
  std::string left = concat("tessera top: ", snapshot.jobs.size(), snapshot.jobs.size() == 1 ? " job, " : " jobs, ",
                            ranks, ranks == 1 ? " rank" : " ranks");
  const std::string end = "q quits  " + clock_text();
  const auto columns = static_cast<std::size_t>(size.columns);
  if (left.size() + end.size() < columns) left += std::string(columns - left.size() - end.size(), ' ') + end;
  std::vector<std::string> lines = {left.substr(0, columns), ""};
  size.rows = std::max(3, size.rows - 2);
  if (snapshot.jobs.empty()) lines.emplace_back(no_jobs);
  for (std::string& line : draw(snapshot, size, colours)) lines.push_back(std::move(line));
  return lines;
}

int watch(BoardWatcher& watcher, pid_t pid, double interval) {
  const bool colours = std::getenv("NO_COLOR") == nullptr;
  launch::SignalQueue signals;
  const FullScreen screen;
  for (;;) {
    const Snapshot snapshot = watcher.take(pid);
    screen.show(frame(snapshot, screen.size(), colours));
    const std::int64_t until = monotonic_ns() + static_cast<std::int64_t>(interval * 1e9);
    for (std::int64_t left = until - monotonic_ns(); left > 0; left = until - monotonic_ns()) {
      pollfd watched[] = {{signals.fd(), POLLIN, 0}, {screen.keys() ? STDIN_FILENO : -1, POLLIN, 0}};
      const int ready = ::poll(watched, 2, static_cast<int>(left / 1'000'000) + 1);
      if (ready < 0) break;  // redraw because the window size has changed or the program was stopped and continued
      if (signals.next() != 0) return 0;
      if (watched[1].revents != 0 && leave_typed()) return 0;
    }
  }
}

}  // namespace

int top_command(const Arguments& arguments) {
  const bool short_help = arguments == Arguments{"-h"};
  const config::Flags flags("top", short_help ? Arguments{"--help"} : arguments, {"pid", "interval", "hostfile"},
                            {"once", "json", "help"});
  if (flags.has("help")) {
    std::fputs(help, stdout);
    return 0;
  }
  if (flags.has("hostfile")) {
    if (flags.has("pid") || flags.has("interval"))
      throw InputError("--hostfile shows all jobs once: remove --pid and --interval");
    return top_of_hosts(*flags.text("hostfile"), flags.has("json"));
  }
  const std::int64_t pid = flags.integer("pid", 0);
  if (flags.has("pid") && (pid < 1 || pid > 1 << 22)) throw InputError(concat("--pid ", pid, " is not a process id"));
  const double interval = flags.real("interval", 1);
  if (!(interval >= 0.1 && interval <= 3600))
    throw InputError(concat("--interval is ", interval, ", must be 0.1..3600"));
  BoardWatcher watcher;
  const auto chosen = static_cast<pid_t>(pid);
  if (!flags.has("once") && !flags.has("json") && ::isatty(STDOUT_FILENO) != 0) return watch(watcher, chosen, interval);
  const Snapshot snapshot = watcher.take(chosen);
  if (flags.has("json")) {
    std::printf("%s\n", dump_json(to_json(snapshot), 2, 9).c_str());
  } else if (snapshot.jobs.empty()) {
    std::printf("%s%s\n", no_jobs, pid > 0 ? concat(" (--pid ", pid, ")").c_str() : "");
  } else {
    for (const std::string& line : draw(snapshot, ScreenSize{}, false)) std::printf("%s\n", line.c_str());
  }
  return 0;
}

}  // namespace tessera::tool
