#pragma once
/// \file
/// Forwards the ranks' output to the agent's: whole lines, each prefixed with its rank, never waiting for a slow
/// reader.

#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/agent/unique_fd.h>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// Bytes waiting to be written to a file descriptor, which is not owned. Writing never blocks, and a slow reader only
/// holds the sources up for a short time: they are not read while the sink is full(). But once 1 MiB waits and nothing
/// was read for `patience` seconds (Ctrl-S, a pager), output of the ranks is dropped, and a line with the dropped
/// amount is written when the reader resumes.
class OutputSink {
 public:
  explicit OutputSink(int fd, double patience = 1);
  int fd() const noexcept { return fd_; }
  bool empty() const noexcept { return pending_.empty(); }
  /// Whether too much is pending to read the sources for now.
  bool full() const { return pending_.size() > max_pending && !unread(); }
  /// Appends one of the agent's own few lines, which are never dropped.
  void append(std::string_view bytes);
  /// Appends a rank's line, including its prefix; dropped while nobody reads.
  void append_line(std::string_view prefix, std::string_view line);
  /// Appends a rank's bytes unchanged; dropped while nobody reads.
  void append_raw(std::string_view bytes);
  /// Writes as much as the descriptor takes without blocking. Bytes that can no longer be delivered are dropped:
  /// silently if the reader of a pipe is gone, with one warning if a disk is full.
  void write_some();
  /// Writes everything, waiting at most `seconds` for the reader.
  void flush(double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t max_pending = std::size_t{1} << 20;

  bool unread() const;  ///< nothing was read for `patience` seconds
  bool drops(std::string_view bytes);
  void tell_dropped();
  void tell_lost(int error);

  int fd_;
  UniqueFd own_;       ///< our own non-blocking open file description of the same pipe or terminal; not set for other
                       ///< files
  std::size_t piece_;  ///< bytes that one write takes without blocking
  Clock::duration patience_;
  Clock::time_point taken_{};  ///< last time at which the reader took something or nothing was pending
  Clock::time_point dropping_since_{};
  std::size_t dropped_lines_ = 0;
  bool dropping_ = false;
  bool told_lost_ = false;
  std::string pending_;
};

/// Splits a byte stream into lines and puts a prefix before each. A line is passed on once it is complete, so that
/// lines of several ranks never mix; lines longer than max_line are split.
class LinePrefixer {
 public:
  LinePrefixer(std::string prefix, OutputSink& sink) : prefix_(std::move(prefix)), sink_(&sink) {}
  /// A prefixer that passes bytes on unchanged, for a rank that draws a progress line.
  static LinePrefixer raw(OutputSink& sink);
  /// Lines for which the predicate returns true are not passed on.
  void keep(std::function<bool(std::string_view line)> kept) { kept_ = std::move(kept); }
  void feed(std::string_view bytes);
  /// At the end of the stream: terminates an unfinished last line with '\n'.
  void finish();

 private:
  static constexpr std::size_t max_line = std::size_t{1} << 16;
  void emit(std::string_view line);
  std::string prefix_;
  OutputSink* sink_;
  std::string partial_;
  std::function<bool(std::string_view)> kept_;
  bool raw_ = false;
};

/// Returns the beginning of a message, which is enough to find the message in a rank's output.
std::string_view first_part(std::string_view message);

/// Passes on both streams of one rank: to the terminal with a prefix, to the rank's log file unchanged, or both
/// (LaunchOptions: prefix_output, prefix_rank0, host_label, log_dir, tee, tee_of_rank, shown_ranks). Keeps the last
/// lines for the report of a failure.
///
/// The file is LOG_DIR/rank-N.log, standard output and standard error in the order of arrival; with restarts allowed
/// LOG_DIR/generation-G/rank-N.log. A run truncates existing files.
class RankOutput {
 public:
  /// The sinks must outlive this. Creates folder and file; throws InputError when that fails.
  RankOutput(const LaunchOptions& options, int rank, int local_rank, int generation, OutputSink& out, OutputSink& err);

  /// Whether a stream must be read from a pipe and passed to feed(). Otherwise the rank writes directly to our streams
  /// and blocks when nobody reads them (LaunchOptions::prefix_output is false).
  bool captured() const noexcept { return captured_; }
  /// Returns the rank's streams that reach a terminal unchanged (for base/terminal.h): "", "1", "2" or "12".
  const std::string& terminals() const noexcept { return terminals_; }
  /// Whether the user has probably seen this text: it is in the last lines that were shown, or the rank writes directly
  /// to our streams.
  bool has_shown(std::string_view text) const;
  void feed_out(std::string_view bytes) { feed(bytes, out_, 0); }
  void feed_err(std::string_view bytes) { feed(bytes, err_, 1); }
  /// Call at the end of both streams.
  void finish();

  /// The last lines of both streams (each at most 1,000 bytes), oldest first.
  std::vector<std::string> last_lines(std::size_t count = 10) const;
  /// Path of the log file with the complete output, or empty.
  const std::string& log_path() const noexcept { return log_path_; }

 private:
  void feed(std::string_view bytes, LinePrefixer& lines, int stream);
  void remember(std::string_view bytes, std::string& partial);
  void write_log(std::string_view bytes);

  bool captured_ = false;
  bool shown_[2] = {true, true};  ///< standard output, standard error
  LinePrefixer out_, err_;
  UniqueFd log_;
  std::string log_path_, terminals_;
  std::string partial_[2];
  std::deque<std::string> last_;
};

/// The folder of a generation's log files: LOG_DIR, or LOG_DIR/generation-G when restarts are allowed.
std::string log_folder(const LaunchOptions& options, int generation);

}  // namespace tessera::launch
