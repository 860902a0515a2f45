#pragma once
/// \file
/// The ranks' output on its way to ours: whole lines, each with its rank before it, never waiting for a slow reader.

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::launch {

/// Bytes that wait for a file descriptor. The descriptor is not owned.
class OutputSink {
 public:
  explicit OutputSink(int fd) : fd_(fd) {}
  int fd() const noexcept { return fd_; }
  bool empty() const noexcept { return pending_.empty(); }
  /// So much waits that the sources should not be read for now.
  bool full() const noexcept { return pending_.size() > max_pending; }
  void append(std::string_view bytes) { pending_.append(bytes); }
  /// Writes what the descriptor takes without waiting. Bytes that nobody can receive any more are dropped (a closed
  /// pipe).
  void write_some();
  /// Writes everything, waiting at most `seconds` for the reader.
  void flush(double seconds);

 private:
  static constexpr std::size_t max_pending = std::size_t{1} << 20;
  int fd_;
  std::string pending_;
};

/// Cuts a byte stream into lines and puts a prefix before each. A line is passed on once it is whole, so that lines of
/// several ranks never mix; one longer than max_line is cut.
class LinePrefixer {
 public:
  LinePrefixer(std::string prefix, OutputSink& sink) : prefix_(std::move(prefix)), sink_(&sink) {}
  void feed(std::string_view bytes);
  /// At the end of the stream: a last line without '\n' gets one.
  void finish();

 private:
  static constexpr std::size_t max_line = std::size_t{1} << 16;
  void emit(std::string_view line);
  std::string prefix_;
  OutputSink* sink_;
  std::string partial_;
};

}  // namespace tessera::launch
