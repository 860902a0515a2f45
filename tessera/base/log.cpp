#include <tessera/base/log.h>

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace tessera::log {
namespace {

Level initial_level() {
  const char* text = std::getenv("TESSERA_LOG");
  const std::string_view name = text == nullptr ? "info" : text;
  if (name == "debug") return Level::debug;
  if (name == "warning") return Level::warning;
  if (name == "error") return Level::error;
  return Level::info;
}

// State of this process's log: its rank and the level. Atomics, because any thread may write a line.
std::atomic<int> current_rank{-1};
std::atomic<Level> threshold{initial_level()};

}  // namespace

void set_rank(int rank, int world_size) { current_rank = world_size > 1 ? rank : -1; }
void set_level(Level level) { threshold = level; }

Quiet::Quiet(Level level) : former_(threshold.load()) { threshold = level < former_ ? former_ : level; }
Quiet::~Quiet() { threshold = former_; }

void write(Level level, const std::string& text) {
  if (level < threshold.load()) return;
  char clock[16];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::strftime(clock, sizeof clock, "%H:%M:%S", &local);
  static constexpr const char* names[] = {"debug: ", "", "warning: ", "error: "};
  const int rank = current_rank.load();
  std::string line = concat("[", clock);
  if (rank >= 0) line += concat(" rank ", rank);
  line += concat("] ", names[static_cast<int>(level)], text, "\n");
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nowhere left to report the failure
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace tessera::log
