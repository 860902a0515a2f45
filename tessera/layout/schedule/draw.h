#pragma once
/// \file
/// Draws timed actions: a planned step, a measured one, or both.
///
/// In text form, a rank has two lines: F, I, W or B where a computation begins, - while it continues, . while the rank
/// waits; and below it the last digit of the micro-batch. The second stage of a rank uses lower-case letters. A rank of
/// more than two stages has a third line with the stage's index on the rank, from 0. * marks a column in which several
/// computations begin.
///
/// The SVG is self-contained: rectangles labelled with the micro-batch, lighter for each additional stage of the rank,
/// and framed if two computations overlap. Hovering over one shows its action and time.

#include <tessera/layout/schedule/timing.h>

#include <string>
#include <vector>

namespace tessera::layout::schedule {

/// One drawing of a step: the timed actions of each rank. Only computations are drawn.
struct Track {
  std::string title;  ///< "planned", "measured"; "" for a single track
  std::vector<std::vector<TimedAction>> ranks;
};
Track track_of(const Timing& timing, std::string title = "");

struct DrawOptions {
  double column = 0;  ///< time per column; 0: the shortest computation, or more if `columns` is too small
  int columns = 160;  ///< maximum
  double scale = 0;   ///< SVG: pixels per unit of time; 0: the whole step is 1200 pixels wide
};

/// `schedule` gives the stages of each rank. All tracks have the same ranks, and share start time and scale.
std::string draw_text(const Schedule& schedule, const std::vector<Track>& tracks, const DrawOptions& options = {});
std::string draw_svg(const Schedule& schedule, const std::vector<Track>& tracks, const DrawOptions& options = {});

/// Helpers of both drawings: the index of every stage among its rank's stages, and the end of the last computation. The
/// latter throws Error unless tracks and schedule match.
std::vector<int> chunk_numbers(const Schedule& schedule);
double end_of(const Schedule& schedule, const std::vector<Track>& tracks);

}  // namespace tessera::layout::schedule
