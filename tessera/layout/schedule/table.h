#pragma once
/// \file
/// The table of schedules: names (ours and others'), what they ask for, what they cost, when to use them. Programs,
/// documents and tests read the rows; to add a schedule, write its generator and a row.

#include <tessera/layout/schedule/generators.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout::schedule {

/// What one F, I and W of a stage take; B takes I + W.
struct StageTime {
  double forward = 1, input_gradient = 1, weight_gradient = 1;  ///< in any unit
};

/// A schedule that can be named: its names, its formulas, its generator.
struct ScheduleRow {
  std::string_view name;                  ///< ours: what --pipeline_schedule takes
  std::vector<std::string_view> others;   ///< other systems' names, and spellings
  Placement placement = Placement::loop;  ///< which rank has which stage
  int least_stages = 1, most_stages = 1;  ///< v, stages per rank; 0: any number from the least on
  bool takes_groups = false;              ///< Shape::group_size means something
  std::string_view bubble;                ///< formula for people, in the terms below
  std::string_view in_flight;             ///< the same, for the activations that rank r keeps
  std::string_view when;                  ///< when to use it
  Schedule (*make)(const Shape&);         ///< the generator; throws InputError for a shape that it cannot have

  /// What the step takes longer than a full pipeline: total - m v (F + I + W), with stages of equal cost and messages
  /// that take no time. nullopt: no formula for this shape and these times; then only timing.h knows.
  std::optional<double> (*bubble_time)(const Shape&, const StageTime&);
  /// The part of it that lies inside the ranks' steps (Timing::inner_bubble).
  std::optional<double> (*inner_bubble_time)(const Shape&, const StageTime&);
  /// Peak of micro-batches in flight on rank r, its v stages together (InFlight::of_rank): each is the activations of
  /// 1 / (p v) of the model for one micro-batch.
  int (*in_flight_of)(const Shape&, int rank);
};

const std::vector<ScheduleRow>& schedules();  ///< a row for each schedule that has a name
/// nullptr: there is none. Upper and lower case, '-', '_', '.' and spaces, and "Schedule" before it make no difference:
/// "ScheduleZBVZeroBubble", "zbv-zero-bubble" and "ZBV" are one.
const ScheduleRow* find_schedule(std::string_view name);
/// Throws InputError with the nearest name, or all of them.
const ScheduleRow& schedule_of(std::string_view name);
/// Throws InputError for an unknown name, or a shape that the schedule cannot have (with the nearest that it can).
/// A shape of 0 stages per rank has the least that the schedule takes.
Schedule make_schedule(std::string_view name, Shape shape);

/// The row whose generator gives these computations and placement for a shape without groups, whatever the schedule is
/// called; that of its name first, where several do. nullptr: none.
const ScheduleRow* find_maker(const Schedule& schedule);

}  // namespace tessera::layout::schedule
