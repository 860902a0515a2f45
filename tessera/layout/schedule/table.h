#pragma once
/// \file
/// The table of schedules: names (ours and others'), requirements, costs, recommendations. Programs, documents and
/// tests read the rows; to add a schedule, write its generator and a row.

#include <tessera/layout/schedule/generators.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout::schedule {

/// Times of one stage's F, I and W; B takes I + W.
struct StageTime {
  double forward = 1, input_gradient = 1, weight_gradient = 1;  ///< in any unit
};

/// A named schedule: its names, formulas and generator.
struct ScheduleRow {
  std::string_view name;                  ///< our name, for --pipeline_schedule
  std::vector<std::string_view> others;   ///< other systems' names, and alternative spellings
  Placement placement = Placement::loop;  ///< stages of each rank
  int least_stages = 1, most_stages = 1;  ///< v, stages per rank; most_stages 0: no upper limit
  bool takes_groups = false;              ///< Shape::group_size has an effect
  std::string_view bubble;                ///< formula as text, with the symbols below
  std::string_view in_flight;             ///< the same for the activations that rank r keeps
  std::string_view when;                  ///< advice on when to use it
  Schedule (*make)(const Shape&);         ///< the generator; throws InputError for an unsupported shape

  /// The excess of the step's time over a full pipeline: total - m v (F + I + W), with stages of equal cost and
  /// messages that take no time. nullopt: no formula for this shape and these times; use timing.h.
  std::optional<double> (*bubble_time)(const Shape&, const StageTime&);
  /// The part of the bubble that is within the ranks' steps (Timing::inner_bubble).
  std::optional<double> (*inner_bubble_time)(const Shape&, const StageTime&);
  /// Peak number of micro-batches in flight on rank r, over its v stages (InFlight::of_rank): each holds the
  /// activations of 1 / (p v) of the model for one micro-batch.
  int (*in_flight_of)(const Shape&, int rank);
};

const std::vector<ScheduleRow>& schedules();  ///< a row for each named schedule
/// Returns nullptr if unknown. Case, '-', '_', '.', spaces and a prefix "Schedule" are ignored:
/// "ScheduleZBVZeroBubble", "zbv-zero-bubble" and "ZBV" are the same.
const ScheduleRow* find_schedule(std::string_view name);
/// Throws InputError with the nearest name, or the list of all.
const ScheduleRow& schedule_of(std::string_view name);
/// Throws InputError for an unknown name, or a shape that the schedule does not support (with the nearest supported
/// one). 0 stages per rank means the schedule's minimum.
Schedule make_schedule(std::string_view name, Shape shape);

/// Returns the row whose generator reproduces these computations and this placement for a shape without groups,
/// regardless of the schedule's name; if there are several, preferably the row with that name. nullptr: none.
const ScheduleRow* find_maker(const Schedule& schedule);

}  // namespace tessera::layout::schedule
