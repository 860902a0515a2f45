#pragma once
/// \file
/// Log lines on stderr: "[12:34:56 rank 2] warning: text". The rank appears when the world is larger than one.
/// Thread-safe: each line is one write(2).

#include <tessera/base/text.h>
#include <string>

namespace tessera::log {

enum class Level { debug, info, warning, error };  ///< in ascending order of importance

/// Sets the prefix of this process's lines. Called once by tessera::init().
void set_rank(int rank, int world_size);
/// Lines below `level` are dropped. Initial value: TESSERA_LOG=debug|info|warning|error, else info.
void set_level(Level level);
void write(Level level, const std::string& text);  ///< one line, unless it is dropped

/// While it exists, lines below `level` are dropped. For work that every rank repeats but only one rank should report.
class Quiet {
 public:
  explicit Quiet(Level level);  ///< for the whole process, all threads; a stricter level already in effect remains
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  Level former_;
};

template <class... Parts>
void debug(const Parts&... parts) {
  write(Level::debug, concat(parts...));
}  ///< write()s the parts, joined by concat(), as one line
template <class... Parts>
void info(const Parts&... parts) {
  write(Level::info, concat(parts...));
}  ///< like debug()
template <class... Parts>
void warning(const Parts&... parts) {
  write(Level::warning, concat(parts...));
}  ///< like debug()
template <class... Parts>
void error(const Parts&... parts) {
  write(Level::error, concat(parts...));
}  ///< like debug()

}  // namespace tessera::log
