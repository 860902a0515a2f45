#include <tessera/base/text.h>
#include <tools/tessera/text_progress.h>

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <mutex>

namespace tessera::tool {

struct TextProgress::State {
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  std::mutex mutex;
  std::chrono::steady_clock::time_point drawn{};
  bool visible = false;
};

TextProgress::TextProgress() : state_(std::make_unique<State>()) {}

TextProgress::~TextProgress() {
  if (state_->visible) std::cerr << "\r\033[K" << std::flush;
}

void TextProgress::show(const std::string& what, std::int64_t done, std::int64_t of, bool bytes) {
  if (!state_->terminal || of <= 0) return;
  const std::lock_guard lock(state_->mutex);
  const auto now = std::chrono::steady_clock::now();
  if (now - state_->drawn < std::chrono::milliseconds(100)) return;
  state_->drawn = now;
  state_->visible = true;
  const auto number = [&](std::int64_t n) {
    return bytes ? format_bytes(static_cast<std::uint64_t>(n)) : std::to_string(n);
  };
  std::cerr << "\r\033[K" << what << " " << number(done) << " of " << number(of) << " (" << 100 * done / of << "%)"
            << std::flush;
}

}  // namespace tessera::tool
