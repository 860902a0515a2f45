#pragma once
/// \file
/// The ranks' output on its way to ours: whole lines, each with its rank before it, never waiting for a slow reader.

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

/// Bytes that wait for a file descriptor, which is not owned. Writing never waits for the reader, nor does anybody wait
/// here for long: a reader that is slow is waited for (full), but once 1 MiB waits and nobody has taken a byte for
/// `patience` seconds (Ctrl-S, a pager), what ranks write is dropped, and when the reader is back, it is told how much.
class OutputSink {
 public:
  explicit OutputSink(int fd, double patience = 1);
  int fd() const noexcept { return fd_; }
  bool empty() const noexcept { return pending_.empty(); }
  /// So much waits that the sources should not be read for now.
  bool full() const { return pending_.size() > max_pending && !unread(); }
  /// For the agent's own lines, which are few: never dropped.
  void append(std::string_view bytes);
  /// A line of a rank with what stands before it, or, while nobody reads, nothing.
  void append_line(std::string_view prefix, std::string_view line);
  /// Bytes of a rank as they are, or, while nobody reads, nothing.
  void append_raw(std::string_view bytes);
  /// Writes what the descriptor takes without waiting. Bytes that nobody can receive any more are dropped: silently
  /// where the reader of a pipe has gone, with one warning where a disk is full.
  void write_some();
  /// Writes everything, waiting at most `seconds` for the reader.
  void flush(double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t max_pending = std::size_t{1} << 20;

  bool unread() const;  ///< nobody has taken a byte for `patience` seconds
  bool drops(std::string_view bytes);
  void tell_dropped();
  void tell_lost(int error);

  int fd_;
  UniqueFd own_;       ///< a description of the same pipe or terminal that does not block; none for other files
  std::size_t piece_;  ///< bytes that one write takes without blocking
  Clock::duration patience_;
  Clock::time_point taken_{};  ///< when the reader took something, or had taken all
  Clock::time_point dropping_since_{};
  std::size_t dropped_lines_ = 0;
  bool dropping_ = false;
  bool told_lost_ = false;
  std::string pending_;
};

/// Cuts a byte stream into lines and puts a prefix before each. A line is passed on once it is whole, so that lines of
/// several ranks never mix; one longer than max_line is cut.
class LinePrefixer {
 public:
  LinePrefixer(std::string prefix, OutputSink& sink) : prefix_(std::move(prefix)), sink_(&sink) {}
  /// One that passes on the bytes as they come: of a rank that draws a progress line.
  static LinePrefixer raw(OutputSink& sink);
  /// Lines for which this is true are not passed on.
  void keep(std::function<bool(std::string_view line)> kept) { kept_ = std::move(kept); }
  void feed(std::string_view bytes);
  /// At the end of the stream: a last line without '\n' gets one.
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

/// The beginning of a message by which it is found in what a rank has written.
std::string_view first_part(std::string_view message);

/// Both streams of one rank on their way: to the terminal with a prefix, to the rank's log file as they are, or both
/// (LaunchOptions: prefix_output, prefix_rank0, host_label, log_dir, tee, tee_of_rank, shown_ranks). Keeps the last
/// lines for the report of a failure.
///
/// The file is LOG_DIR/rank-N.log, standard output and standard error in the order in which they came here; with
/// restarts allowed LOG_DIR/generation-G/rank-N.log. A run starts its files anew.
class RankOutput {
 public:
  /// The sinks outlive this. Makes folder and file; throws InputError when that fails.
  RankOutput(const LaunchOptions& options, int rank, int local_rank, int generation, OutputSink& out, OutputSink& err);

  /// Whether a stream must be read from a pipe and given to feed(); else the rank writes straight to ours, and waits
  /// where nobody reads that (LaunchOptions::prefix_output is false).
  bool captured() const noexcept { return captured_; }
  /// For base/terminal.h: which of the rank's streams end, as they are, at a terminal: "", "1", "2" or "12".
  const std::string& terminals() const noexcept { return terminals_; }
  /// Whether people have read this text here, as far as that can be known: it is in the last lines that were shown, or
  /// the rank writes straight to ours.
  bool has_shown(std::string_view text) const;
  void feed_out(std::string_view bytes) { feed(bytes, out_, 0); }
  void feed_err(std::string_view bytes) { feed(bytes, err_, 1); }
  /// At the end of both streams.
  void finish();

  /// The last lines of both streams (each at most 1,000 bytes), oldest first.
  std::vector<std::string> last_lines(std::size_t count = 10) const;
  /// Where the rest can be read: the log file's path, or empty.
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
