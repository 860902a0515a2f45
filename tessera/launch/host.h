#pragma once
/// \file
/// What the agent of a host holds for the whole job, while generations of ranks come and go: signals, guardian, its
/// output, the board.

#include <tessera/launch/board.h>
#include <tessera/launch/guardian.h>
#include <tessera/launch/launcher.h>
#include <tessera/launch/oom.h>
#include <tessera/launch/output.h>
#include <tessera/launch/signal_queue.h>

#include <string>
#include <vector>

namespace tessera::launch {

class Host {
 public:
  /// Checks what can be checked before anything starts; opens the report file. Throws InputError.
  Host(const std::vector<std::string>& command, const LaunchOptions& options);

  /// A line for people, on standard error and in LOG_DIR/agent.log.
  void say(const std::string& text);
  /// The lines of a report, indented.
  void say_lines(const std::string& text);
  /// A file beside the ranks' logs for what is too long for the terminal; returns its path, empty without a log_dir.
  std::string write_report(const std::string& name, const std::string& text);
  /// Where rank 0 draws a progress line on the terminal, other lines first clear it.
  std::string line_start(int fd) const;

  const std::vector<std::string> command;
  const LaunchOptions options;
  SignalQueue signals;
  Guardian guardian;
  OutputSink out, err;
  OomWatch oom;
  std::string job;  ///< a random id, equal on all hosts of the job
  Board board;      ///< made for the first generation

 private:
  void write_line(const std::string& line);
  UniqueFd report_;
};

}  // namespace tessera::launch
