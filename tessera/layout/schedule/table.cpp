#include <tessera/layout/schedule/table.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include <tessera/base/error.h>
#include <tessera/layout/schedule/rank_list.h>

namespace tessera::layout::schedule {
namespace {

using Bubble = std::optional<double>;

double whole(const StageTime& time) { return time.forward + time.input_gradient + time.weight_gradient; }
bool is_equal(const StageTime& time) {
  return time.forward == time.input_gradient && time.forward == time.weight_gradient;
}

/// (p - 1)(F + B); if micro-batches do not fill the loop of p ranks, each of the v - 1 rounds waits for p - m more.
Bubble loop_bubble(const Shape& shape, const StageTime& time) {
  const int gap = std::max(shape.ranks - shape.micro_batches, 0);
  return ((shape.stages_per_rank - 1) * gap + shape.ranks - 1) * whole(time);
}

Bubble interleaved_bubble(const Shape& shape, const StageTime& time) {
  if (shape.group_size != 0 && shape.micro_batches % shape.group_size != 0) return std::nullopt;
  return loop_bubble(shape, time);
}

Bubble zb_h1_bubble(const Shape& shape, const StageTime& time) {
  if (shape.micro_batches < shape.ranks) return std::nullopt;
  if (shape.group_size != 0 && shape.micro_batches % shape.group_size != 0) return std::nullopt;
  return (shape.ranks - 1) *
         std::max({time.forward, time.input_gradient, time.forward + time.input_gradient - time.weight_gradient});
}

Bubble zb_h2_bubble(const Shape& shape, const StageTime& time) {
  if (shape.micro_batches < 2 * shape.ranks - 1) return std::nullopt;
  return (shape.ranks - 1) * std::max({time.forward, time.input_gradient - time.forward,
                                       time.forward + time.input_gradient - 2 * time.weight_gradient});
}

Bubble zb_h2_inner(const Shape& shape, const StageTime& time) {
  if (shape.micro_batches < 2 * shape.ranks - 1) return std::nullopt;
  return (shape.ranks - 1) * std::max({0.0, time.input_gradient - time.forward,
                                       time.forward + time.input_gradient - 2 * time.weight_gradient});
}

Bubble zbv_bubble(const Shape& shape, const StageTime& time) {
  if (shape.micro_batches < 2 * shape.ranks - 1 || !is_equal(time)) return std::nullopt;
  return (shape.ranks - 1) * time.forward;
}

Bubble zbv_inner(const Shape& shape, const StageTime& time) {
  return zbv_bubble(shape, time) ? Bubble(0.0) : std::nullopt;
}

Bubble dualpipev_bubble(const Shape& shape, const StageTime& time) {
  if (shape.micro_batches < 2 * shape.ranks || !is_equal(time)) return std::nullopt;
  return (shape.ranks - 1) * (time.forward + 2 * time.input_gradient - time.weight_gradient);
}

int all_forwards(const Shape& shape) { return shape.stages_per_rank * shape.micro_batches; }

int interleaved_in_flight(const Shape& shape, int rank) {
  return std::min(all_forwards(shape),
                  2 * (shape.ranks - 1 - rank) + (shape.stages_per_rank - 1) * group_sizes(shape).front() + 1);
}

int zb_h1_in_flight(const Shape& shape, int) {
  return std::min(all_forwards(shape), (shape.stages_per_rank - 1) * group_sizes(shape).front() + shape.ranks);
}

int v_in_flight(const Shape& shape, int rank, int most) {
  return std::min({2 * shape.micro_batches, shape.micro_batches + 1 + rank, most});
}

constexpr int any = 0;

std::string plain(std::string_view name) {
  std::string word;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ' && c != '.')
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view prefix = "schedule";
  return word.size() > prefix.size() && word.starts_with(prefix) ? word.substr(prefix.size()) : word;
}

}  // namespace

const std::vector<ScheduleRow>& schedules() {
  static const std::vector<ScheduleRow> rows = {
      {.name = "gpipe",
       .others = {"GPipe", "fill_drain", "AFAB", "all_forward_all_backward", "F_then_B"},
       .bubble = "(p - 1) (F + B)",
       .in_flight = "m",
       .when = "few micro-batches or little memory per micro-batch; the simplest to understand",
       .make = gpipe,
       .bubble_time = loop_bubble,
       .inner_bubble_time = loop_bubble,
       .in_flight_of = [](const Shape& shape, int) { return shape.micro_batches; }},
      {.name = "1f1b",
       .others = {"1F1B", "PipeDream-Flush", "one_forward_one_backward", "DAPPLE", "TrainSchedule"},
       .bubble = "(p - 1) (F + B)",
       .in_flight = "min(m, p - r)",
       .when = "the default: least memory with one stage per rank, one message per stage and micro-batch",
       .make = one_forward_one_backward,
       .bubble_time = loop_bubble,
       .inner_bubble_time = loop_bubble,
       .in_flight_of = [](const Shape& shape, int rank) { return std::min(shape.micro_batches, shape.ranks - rank); }},
      {.name = "interleaved_1f1b",
       .others = {"Interleaved1F1B", "interleaved", "virtual_pipeline", "VPP"},
       .least_stages = 2,
       .most_stages = any,
       .takes_groups = true,
       .bubble = "(p - 1) (F + B), with stages of 1 / v of the size",
       .in_flight = "min(v m, 2 (p - 1 - r) + (v - 1) G + 1)",
       .when = "1F1B's bubble divided by v, for v times the messages and somewhat more memory",
       .make = interleaved,
       .bubble_time = interleaved_bubble,
       .inner_bubble_time = interleaved_bubble,
       .in_flight_of = interleaved_in_flight},
      {.name = "looped_bfs",
       .others = {"LoopedBFS", "breadth_first", "BFS", "looped_breadth_first"},
       .least_stages = 1,
       .most_stages = any,
       .bubble = "(p - 1) (F + B), with stages of 1 / v of the size",
       .in_flight = "v m",
       .when = "sharded parameters (ZeRO-3, FSDP) with few micro-batches: a stage is gathered once and used for all of "
               "them",
       .make = looped_breadth_first,
       .bubble_time = loop_bubble,
       .inner_bubble_time = loop_bubble,
       .in_flight_of = [](const Shape& shape, int) { return all_forwards(shape); }},
      {.name = "zb_h1",
       .others = {"InterleavedZeroBubble", "ZB1P", "zero_bubble_h1", "zero_bubble"},
       .least_stages = 1,
       .most_stages = any,
       .takes_groups = true,
       .bubble = "(p - 1) max(F, I, F + I - W)",
       .in_flight = "min(v m, (v - 1) G + p)",
       .when = "1F1B's memory on the first rank (the same on the others), a third of its bubble",
       .make = zb_h1,
       .bubble_time = zb_h1_bubble,
       .inner_bubble_time = zb_h1_bubble,
       .in_flight_of = zb_h1_in_flight},
      {.name = "zb_h2",
       .others = {"ZB2P", "zero_bubble_h2"},
       .bubble = "(p - 1) max(F, I - F, F + I - 2 W); inside a rank (p - 1) max(0, I - F, F + I - 2 W)",
       .in_flight = "min(m, 2 p - 1)",
       .when =
           "twice 1F1B's memory; no bubble inside a rank, which pays off if ranks step without waiting for each other",
       .make = zb_h2,
       .bubble_time = zb_h2_bubble,
       .inner_bubble_time = zb_h2_inner,
       .in_flight_of = [](const Shape& shape, int) { return std::min(shape.micro_batches, 2 * shape.ranks - 1); }},
      {.name = "zbv",
       .others = {"ZBVZeroBubble", "ZB-V", "zero_bubble_v"},
       .placement = Placement::v,
       .least_stages = 2,
       .most_stages = 2,
       .bubble = "(p - 1) F if F = I = W; inside a rank 0",
       .in_flight = "min(2 m, m + 1 + r, 2 p)",
       .when = "the smallest bubble: 1F1B's memory, the same on all ranks, the loss on the rank of the embedding; best "
               "if F, I and W cost the same",
       .make = zbv,
       .bubble_time = zbv_bubble,
       .inner_bubble_time = zbv_inner,
       .in_flight_of = [](const Shape& shape, int rank) { return v_in_flight(shape, rank, 2 * shape.ranks); }},
      {.name = "dualpipev",
       .others = {"DualPipeV", "DualPipe", "cut_in_half"},
       .placement = Placement::v,
       .least_stages = 2,
       .most_stages = 2,
       .bubble = "(p - 1) (F + 2 I - W) if F = I = W, nothing hidden",
       .in_flight = "min(2 m, m + 1 + r, 2 p + 1)",
       .when = "experts: overlapped forward and backward hide each other's communication; m >= 2 p",
       .make = dualpipev,
       .bubble_time = dualpipev_bubble,
       .inner_bubble_time = dualpipev_bubble,
       .in_flight_of = [](const Shape& shape, int rank) { return v_in_flight(shape, rank, 2 * shape.ranks + 1); }}};
  return rows;
}

const ScheduleRow* find_schedule(std::string_view name) {
  const std::string word = plain(name);
  for (const ScheduleRow& row : schedules()) {
    const auto is_it = [&](std::string_view one) { return plain(one) == word; };
    if (is_it(row.name) || std::any_of(row.others.begin(), row.others.end(), is_it)) return &row;
  }
  return nullptr;
}

const ScheduleRow& schedule_of(std::string_view name) {
  if (const ScheduleRow* row = find_schedule(name)) return *row;
  std::vector<std::string> names, known;  // names to print, names to compare
  for (const ScheduleRow& row : schedules()) {
    names.emplace_back(row.name);
    known.push_back(plain(row.name));
    for (const std::string_view other : row.others) known.push_back(plain(other));
  }
  const auto near = nearest(plain(name), known);
  throw InputError(concat(
      "unknown pipeline schedule '", name, "'; ",
      near ? concat("did you mean ", find_schedule(*near)->name, "?") : concat("the schedules are ", join(names))));
}

Schedule make_schedule(std::string_view name, Shape shape) {
  const ScheduleRow& row = schedule_of(name);
  if (shape.stages_per_rank == 0) shape.stages_per_rank = row.least_stages;
  if (shape.group_size != 0 && !row.takes_groups)
    throw InputError(concat("schedule ", row.name, ": groups of ", shape.group_size,
                            " micro-batches are not supported; interleaved_1f1b and zb_h1 support them"));
  return row.make(shape);
}

const ScheduleRow* find_maker(const Schedule& schedule) {
  Schedule computations = computations_of(schedule);
  const int ranks = static_cast<int>(schedule.ranks.size());
  if (ranks < 1 || schedule.stages() < 1 || schedule.stages() % ranks != 0) return nullptr;
  const Shape shape{ranks, schedule.stages() / ranks, schedule.micro_batches};
  // A valid schedule contains all its forwards, so its shape does not exceed the generators' limit; but generators that
  // process extra micro-batches may exceed it.
  const auto makes_it = [&](const ScheduleRow& row) {
    if (shape.stages_per_rank < row.least_stages) return false;
    if (row.most_stages != any && shape.stages_per_rank > row.most_stages) return false;
    if (schedule.rank_of != place_stages(row.placement, ranks, shape.stages_per_rank)) return false;
    computations.name = row.name;
    try {
      return row.make(shape) == computations;
    } catch (const InputError&) {
      return false;  // the shape is too large for this generator, so the schedule is not from it
    }
  };
  const ScheduleRow* named = find_schedule(schedule.name);
  if (named != nullptr && makes_it(*named)) return named;
  for (const ScheduleRow& row : schedules())
    if (&row != named && makes_it(row)) return &row;
  return nullptr;
}

}  // namespace tessera::layout::schedule
