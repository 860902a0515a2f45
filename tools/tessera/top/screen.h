#pragma once
/// \file
/// Renders a snapshot for `tessera top`: lines for a terminal or a file, or JSON. Pure functions.

#include <tools/tessera/top/snapshot.h>

#include <tessera/base/value.h>

#include <string>
#include <vector>

namespace tessera::tool {

struct ScreenSize {
  int columns = 80;
  int rows = 0;  ///< 0: no limit; otherwise detail lines are omitted to fit
};

/// Lines no wider than the screen. With `colours`, a rank in trouble is red (ANSI sequences, not counted).
std::vector<std::string> draw(const Snapshot& snapshot, const ScreenSize& screen, bool colours);

/// {"jobs": [{"job", "agent_pid", "agent_stopped", "generation", "world_size", "seconds", "ranks": [...]}]}; unknown
/// values are null.
Value to_json(const Snapshot& snapshot);

/// "running", "FROZEN", "dead", ...: at most 10 letters.
std::string state_word(const RankView& rank);

}  // namespace tessera::tool
