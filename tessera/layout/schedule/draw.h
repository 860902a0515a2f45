#pragma once
/// \file
/// Drawings of timed actions: what a timing plans, what a run measured, or one beside the other.
///
/// As text a rank has two lines: F, I, W or B where a computation begins, - where it goes on, . where the rank waits;
/// and below the last digit of its micro-batch. The second stage of a rank has small letters. A rank of more than two
/// stages has a third line that counts its stages from 0. * stands where several computations begin in one column.
///
/// The SVG stands alone: rectangles with the micro-batch, lighter for every further stage of the rank, framed where two
/// are done as one; a pointer over one shows action and time.

#include <tessera/layout/schedule/timing.h>

#include <string>
#include <vector>

namespace tessera::layout::schedule {

/// One drawing of a step: per rank its actions with their times. Others than computations are not drawn.
struct Track {
  std::string title;  ///< "planned", "measured"; "" with only one
  std::vector<std::vector<TimedAction>> ranks;
};
Track track_of(const Timing& timing, std::string title = "");

struct DrawOptions {
  double column = 0;  ///< time of one column; 0: the shortest computation, or more if `columns` are not enough
  int columns = 160;  ///< at most
  double scale = 0;   ///< SVG: pixels per unit of time; 0: 1200 pixels for the whole
};

/// `schedule` says which stages a rank has. All tracks have its ranks, and share the time's beginning and scale.
std::string draw_text(const Schedule& schedule, const std::vector<Track>& tracks, const DrawOptions& options = {});
std::string draw_svg(const Schedule& schedule, const std::vector<Track>& tracks, const DrawOptions& options = {});

/// For both drawings: for every stage, which of its rank's stages it is; and when the last computation ends, after a
/// check that tracks and schedule fit (Error).
std::vector<int> chunk_numbers(const Schedule& schedule);
double end_of(const Schedule& schedule, const std::vector<Track>& tracks);

}  // namespace tessera::layout::schedule
