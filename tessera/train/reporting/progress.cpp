#include <tessera/train/reporting/progress.h>

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <tessera/base/clock.h>
#include <tessera/base/terminal.h>
#include <tessera/base/text.h>

namespace tessera::train {
namespace {

constexpr std::int64_t redraw_ns = 100'000'000, tell_ns = 60'000'000'000;

template <class... Numbers>
std::string print(const char* format, Numbers... numbers) {
  char buffer[128];
  std::snprintf(buffer, sizeof buffer, format, numbers...);
  return buffer;
}

std::string loss_text(double loss) { return print("loss %.4f", loss); }
std::string rate_text(double rate) { return print("lr %.2e", rate); }
std::string speed_text(double tokens_per_second) { return format_count(tokens_per_second) + " tok/s"; }

std::string bar(double fraction, int width) {
  const int filled = std::clamp(static_cast<int>(fraction * width), 0, width);
  std::string text(static_cast<std::size_t>(width), ' ');
  std::fill_n(text.begin(), filled, '=');
  if (filled < width) text[static_cast<std::size_t>(filled)] = '>';
  return "[" + text + "]";
}

/// Returns to the beginning of the line and erases to the end of the screen: the line wraps when the terminal has
/// become narrower.
constexpr const char* erase = "\r\x1b[J";

void put(const std::string& text, int file = STDERR_FILENO) {
  // A terminal that was closed, or a pipe without a reader, must not end the training.
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t n = ::write(file, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// One column stays free, because a full line would make some terminals wrap.
int columns() { return terminal_columns(STDERR_FILENO) - 1; }

}  // namespace

std::string progress_line(const ProgressState& s, int columns) {
  const double fraction = s.total_steps > 0 ? static_cast<double>(s.step) / static_cast<double>(s.total_steps) : 1;
  // The parts, in display order; when space is short, those with the highest rank are dropped first.
  struct Part {
    std::string text;
    int rank;
  };
  std::vector<Part> parts = {{concat(s.step, "/", s.total_steps), 0}};
  if (std::isfinite(s.loss)) parts.push_back({loss_text(s.loss), 1});
  parts.push_back({rate_text(s.learning_rate), 5});
  if (s.tokens_per_second > 0) {
    parts.push_back({speed_text(s.tokens_per_second), 3});
    parts.push_back({format_bytes(static_cast<std::uint64_t>(s.memory_bytes)), 4});
    parts.push_back({format_duration(s.seconds_left) + " left", 2});
  }
  const auto width = [&] {
    std::size_t total = 0;
    for (const Part& part : parts) total += part.text.size() + 2;
    return static_cast<int>(total - std::min<std::size_t>(total, 2));
  };
  while (parts.size() > 1 && width() > columns)
    parts.erase(
        std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; }));

  std::string line;
  const int room = columns - width() - 4;  // "[" "]" and two spaces
  if (room >= 8) line = bar(fraction, std::min(room, 30)) + "  ";
  for (std::size_t i = 0; i < parts.size(); ++i) line += (i > 0 ? "  " : "") + parts[i].text;
  return line.substr(0, static_cast<std::size_t>(std::max(columns, 0)));
}

std::string evaluation_line(std::int64_t done, std::int64_t batches, int columns) {
  const std::string text = concat("evaluation ", done, "/", batches);
  const int room = columns - static_cast<int>(text.size()) - 4;  // "[" "]" and two spaces
  const double fraction = batches > 0 ? static_cast<double>(done) / static_cast<double>(batches) : 1;
  const std::string line = room >= 8 ? bar(fraction, std::min(room, 30)) + "  " + text : text;
  return line.substr(0, static_cast<std::size_t>(std::max(columns, 0)));
}

std::string plain_line(const StepMetrics& m, std::int64_t total_steps, double seconds_left) {
  const double percent = total_steps > 0 ? 100.0 * static_cast<double>(m.step) / static_cast<double>(total_steps) : 100;
  return concat("step ", m.step, "/", total_steps, print(" (%.0f%%)", percent), print("  epoch %.2f  ", m.epoch),
                loss_text(m.loss), print("  grad_norm %.3g  ", m.grad_norm), rate_text(m.learning_rate), "  ",
                speed_text(m.tokens_per_second), "  ", format_bytes(static_cast<std::uint64_t>(m.peak_memory_bytes())),
                "  ", format_duration(seconds_left), " left");
}

Progress::Progress(bool quiet, bool disabled) {
  if (quiet) return;
  mode_ = Mode::plain;
  if (disabled) return;
  const char* term = std::getenv("TERM");
  if (on_terminal(STDERR_FILENO) && term != nullptr && std::string(term) != "dumb") mode_ = Mode::terminal;
}

Progress::~Progress() { close(); }

void Progress::step(const ProgressState& state) {
  state_ = state;
  if (mode_ != Mode::terminal) return;
  const std::int64_t now = monotonic_ns();
  if (drawn_ && now - drawn_ns_ < redraw_ns && state.step != state.total_steps) return;
  drawn_ns_ = now;
  draw(training_line());
}

void Progress::evaluating(std::int64_t done, std::int64_t batches) {
  const std::int64_t now = monotonic_ns();
  if (done == 0) told_ns_ = now;
  if (mode_ == Mode::plain && now - told_ns_ >= tell_ns) {
    told_ns_ = now;
    note(concat("evaluation ", done, "/", batches));
  }
  if (mode_ != Mode::terminal || (drawn_ && now - drawn_ns_ < redraw_ns)) return;
  drawn_ns_ = now;
  draw(evaluation_line(done, batches, columns()));
}

void Progress::evaluated() {
  if (mode_ != Mode::terminal || !drawn_) return;
  if (state_.total_steps > 0) return draw(training_line());
  put(erase);
  drawn_ = false;
}

std::string Progress::training_line() const { return progress_line(state_, columns()); }

void Progress::draw(std::string line) {
  line_ = std::move(line);
  // The cursor stays at the beginning of the line, so that output of other processes starts there.
  put(erase + line_ + "\r");
  drawn_ = true;
}

void Progress::set_loss(double loss) {
  state_.loss = loss;
  if (mode_ == Mode::terminal && drawn_) draw(training_line());
}

void Progress::note(const std::string& text) { lasting(STDERR_FILENO, text); }

void Progress::record(const std::string& text) { lasting(STDOUT_FILENO, text); }

void Progress::lasting(int file, const std::string& text) {
  if (mode_ == Mode::quiet) return;
  if (mode_ == Mode::terminal && drawn_) put(erase);
  put(text + "\n", file);
  if (mode_ == Mode::terminal && drawn_) draw(line_);
}

void Progress::close() {
  if (mode_ == Mode::terminal && drawn_) put("\n");
  drawn_ = false;
}

}  // namespace tessera::train
