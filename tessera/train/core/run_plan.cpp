#include <tessera/train/core/run_plan.h>

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/base/plural.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/core/run_config.h>
#include <tessera/layout/batch/ramp.h>

namespace tessera::train {
namespace {

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Rows still to be taken from the epoch in which the run starts; all of its rows if the run goes back to its
/// beginning.
std::int64_t rest_of_first_epoch(const RunPlan& plan) {
  return plan.train_blocks - (plan.resumed_samples - plan.repeated_rows) % plan.train_blocks;
}

std::int64_t samples_by_epoch(const RunPlan& plan, std::int64_t steps) {
  const std::int64_t rows = plan.rows_per_step(), rest = rest_of_first_epoch(plan), first = quotient_up(rest, rows);
  const std::int64_t taken = steps - plan.resumed_step;
  if (taken <= first) return plan.resumed_samples + std::min(taken * rows, rest);
  const std::int64_t epochs = (taken - first) / plan.steps_per_epoch(), more = (taken - first) % plan.steps_per_epoch();
  return plan.resumed_samples + rest + epochs * plan.train_blocks + std::min(more * rows, plan.train_blocks);
}

/// Steps of `epochs` passes when steps end with epochs, including steps before a resume. The latter may have had a
/// different number of rows, so the rest of their epoch is counted in rows.
std::int64_t steps_of_epochs(const RunPlan& plan, double epochs) {
  const std::int64_t each = plan.steps_per_epoch(), rows = plan.rows_per_step();
  const auto wanted = static_cast<std::int64_t>(std::ceil(epochs * static_cast<double>(each)));
  const std::int64_t epoch = plan.resumed_samples / plan.train_blocks;
  const std::int64_t rest = plan.train_blocks - plan.resumed_samples % plan.train_blocks;
  if (wanted / each > epoch)
    return plan.resumed_step + quotient_up(rest, rows) + (wanted / each - epoch - 1) * each + wanted % each;
  const std::int64_t done = epoch * each + quotient_up(plan.train_blocks - rest, rows);
  return plan.resumed_step + std::max<std::int64_t>(0, wanted - done);
}

}  // namespace

std::int64_t RunPlan::samples(std::int64_t steps) const {
  if (token_steps) return token_steps->begin(steps);
  if (steps_end_with_epochs) return samples_by_epoch(*this, steps);
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), steps, [](auto step, const auto& s) { return step < s.step; });
  if (after == segments.begin()) return resumed_samples + (steps - resumed_step) * rows_per_step();
  const Segment& segment = *(after - 1);
  return segment.samples + (steps - segment.step) * segment.rows;
}

std::int64_t RunPlan::micro_batches(std::int64_t step) const {
  if (segments.empty() && (!steps_end_with_epochs || equal_micro_batches)) return accumulation;
  const std::int64_t own = (rows_of_step(step) + data_ranks - 1) / data_ranks;  // the first rank has the most rows
  return (own + batch_size - 1) / batch_size;
}

std::int64_t RunPlan::ranks_with_rows(std::int64_t step) const {
  return steps_end_with_epochs ? std::min(rows_of_step(step), data_ranks) : data_ranks;
}

std::int64_t RunPlan::micro_batches_with_rows(std::int64_t step) const {
  const std::int64_t each = micro_batches(step);
  if (!steps_end_with_epochs) return each * data_ranks;
  std::int64_t all = 0;
  for (const std::int64_t share : equal_shares(step)) all += std::min(share, each);
  return all;
}

layout::RowRange RunPlan::rows_of(std::int64_t step, std::int64_t micro, std::int64_t rank,
                                  const std::vector<std::int64_t>& shares) const {
  layout::RowRange rows = layout::rows_of_micro_batch(shares, micro_batches(step), micro, rank);
  rows.begin += samples(step) - repeated_rows;
  rows.begin += dropped_rows > 0 ? rows.begin / train_blocks * dropped_rows : 0;
  return rows;
}

std::int64_t RunPlan::first_row(std::int64_t step, std::int64_t micro, std::int64_t rank) const {
  return rows_of(step, micro, rank, equal_shares(step)).begin;
}

double RunPlan::epoch(std::int64_t steps) const {
  const std::int64_t unit = steps_end_with_epochs ? data_ranks * batch_size : 1, done = samples(steps);
  return static_cast<double>(done / train_blocks) + static_cast<double>(quotient_up(done % train_blocks, unit)) /
                                                        static_cast<double>(quotient_up(train_blocks, unit));
}

bool RunPlan::ends_epoch(std::int64_t steps) const {
  const auto epochs = [this](std::int64_t done) { return (samples(done) - repeated_rows) / train_blocks; };
  return steps > resumed_step && epochs(steps) > epochs(steps - 1);
}

bool RunPlan::logs_after(std::int64_t steps) const {
  return (logging_steps > 0 && steps % logging_steps == 0) || (log_at_epoch && ends_epoch(steps)) ||
         (log_at_end && steps == total_steps) || (log_first && steps == 1);
}

bool RunPlan::evaluates_after(std::int64_t steps) const {
  if (eval_at_end && steps == total_steps) return true;
  if (eval_at_epoch) return ends_epoch(steps) && epoch(steps) >= eval_delay;
  return eval_every > 0 && steps % eval_every == 0 && static_cast<double>(steps) >= eval_delay;
}

bool RunPlan::saves_after(std::int64_t steps) const {
  return (save_every > 0 && steps % save_every == 0) || (save_at_epoch && ends_epoch(steps)) ||
         (save_at_end && steps == total_steps);
}

void RunPlan::write_to(checkpoint::RunState& state, std::int64_t steps) const {
  state.step = steps;
  state.samples = samples(steps);
  state.epoch = epoch(steps);
  state.max_steps = total_steps;
  state.num_train_epochs = num_train_epochs;
  state.train_batch_size = batch_size;
  state.logging_steps = logging_steps;
  state.eval_steps = eval_every;
  state.save_steps = save_every;
}

std::uint64_t sampling_seed(const RunConfig& config) {
  return static_cast<std::uint64_t>(config.data.data_seed >= 0 ? config.data.data_seed : config.optimization.seed);
}

std::int64_t warmup_steps(const OptimizationConfig& config, std::int64_t total_steps) {
  if (config.warmup_steps != 0 || config.warmup_ratio <= 0) return config.warmup_steps;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(total_steps) * config.warmup_ratio));
}

namespace {

/// A setting that is a number of steps or, below 1, a share of all steps.
std::int64_t steps_of(double setting, std::int64_t total) {
  return static_cast<std::int64_t>(setting < 1 ? std::ceil(static_cast<double>(total) * setting) : setting);
}

/// Segments of a growing batch from where the run starts; the last segment is the full batch.
std::vector<RunPlan::Segment> growing_steps(const RunPlan& plan, const layout::BatchRamp& ramp) {
  std::vector<RunPlan::Segment> segments;
  const std::int64_t full = plan.rows_per_step();
  for (std::int64_t step = plan.resumed_step, samples = plan.resumed_samples;;) {
    const std::int64_t rows = layout::ramp_rows(ramp, full, samples);
    if (segments.empty() || segments.back().rows != rows) segments.push_back({step, samples, rows});
    if (rows == full) return segments;
    ++step;
    samples += rows;
  }
}

/// Steps until `rows` rows are consumed.
std::int64_t steps_until(const RunPlan& plan, double rows) {
  std::int64_t steps = plan.resumed_step;
  if (!plan.token_steps && !plan.segments.empty()) {
    const RunPlan::Segment& full = plan.segments.back();
    if (const double rest = rows - static_cast<double>(full.samples); rest > 0)
      return full.step + static_cast<std::int64_t>(std::ceil(rest / static_cast<double>(full.rows)));
  }
  while (static_cast<double>(plan.samples(steps)) < rows) ++steps;
  return steps;
}

std::int64_t steps_of_run(const OptimizationConfig& optimization, const RunPlan& plan) {
  if (optimization.max_steps > 0) return optimization.max_steps;
  if (plan.steps_end_with_epochs) return steps_of_epochs(plan, optimization.num_train_epochs);
  const double rows = optimization.num_train_epochs * static_cast<double>(plan.train_blocks);
  if (plan.token_steps || !plan.segments.empty()) return steps_until(plan, rows);
  const double rest = std::max(0.0, rows - static_cast<double>(plan.resumed_samples));
  return plan.resumed_step + static_cast<std::int64_t>(std::ceil(rest / static_cast<double>(plan.rows_per_step())));
}

[[noreturn]] void refuse_fewer_rows_than_a_step(const RunPlan& plan, const std::string& why) {
  throw InputError(concat("the training data has ", plural(plan.train_blocks, "row"), " but one step takes ",
                          plan.rows_per_step(), " (", plural(plan.data_ranks, "process", "processes"), " x ",
                          plural(plan.batch_size, "row"), " x ",
                          plural(plan.accumulation, "micro-batch", "micro-batches"), "), and ", why,
                          ": lower --per_device_train_batch_size, --gradient_accumulation_steps or --block_size, or "
                          "provide more text"));
}

}  // namespace

std::string why_steps_are_whole(const RunConfig& config, const RunPlan& plan) {
  if (plan.train_blocks < 1) return "there are no rows";
  if (plan.token_steps) return "";
  if (config.data.streaming) return "a stream has no epochs";
  if (config.parallel.deterministic_reduce) return "--deterministic_reduce needs the same micro-batches in each step";
  if (!config.optimization.batch_size_schedule.empty())
    return "--batch_size_schedule fixes the number of rows of a step";
  return "";
}

namespace {

/// Sets after which steps the run logs, evaluates and saves.
void set_intervals(RunPlan& plan, const OutputConfig& output, bool has_validation) {
  plan.logging_steps =
      output.logging_strategy == Interval::steps ? steps_of(output.logging_steps, plan.total_steps) : 0;
  plan.log_at_epoch = output.logging_strategy == Interval::epoch;
  plan.log_at_end = output.logging_strategy != Interval::no;
  plan.log_first = output.logging_first_step;
  if (has_validation) {
    if (output.eval_strategy == Interval::steps)
      plan.eval_every = steps_of(output.eval_steps > 0 ? output.eval_steps : output.logging_steps, plan.total_steps);
    plan.eval_delay = output.eval_delay;
    plan.eval_at_epoch = output.eval_strategy == Interval::epoch;
    plan.eval_at_end = true;
  }
  if (output.save_strategy == SaveStrategy::steps) plan.save_every = steps_of(output.save_steps, plan.total_steps);
  plan.save_at_epoch = output.save_strategy == SaveStrategy::epoch;
  plan.save_at_end = output.save_strategy == SaveStrategy::steps || output.save_strategy == SaveStrategy::epoch;
}

}  // namespace

RunPlan make_run_plan(const RunConfig& config, std::int64_t data_ranks, std::int64_t train_blocks, bool has_validation,
                      ResumePoint resume, const SampleLength& length, std::int64_t longest, double quadratic_cost) {
  const auto& optimization = config.optimization;
  const auto& output = config.output;
  RunPlan plan;
  plan.data_ranks = data_ranks;
  plan.batch_size = optimization.per_device_train_batch_size;
  plan.accumulation = optimization.gradient_accumulation_steps;
  plan.train_blocks = train_blocks;
  plan.resumed_step = resume.step;
  plan.resumed_samples = resume.samples;
  plan.equal_micro_batches = config.parallel.pp_size > 1;
  const std::int64_t rows = plan.rows_per_step();
  if (config.data.dataloader_drop_last) {
    plan.dropped_rows = train_blocks % (data_ranks * plan.batch_size);
    plan.train_blocks -= plan.dropped_rows;
    if (plan.train_blocks == 0 && train_blocks > 0) {
      plan.train_blocks = train_blocks;
      refuse_fewer_rows_than_a_step(
          plan, "--dataloader_drop_last drops rows that do not fill a micro-batch of all processes");
    }
  }
  if (optimization.tokens_per_batch > 0) {
    TESSERA_CHECK(length, "token batches need the lengths of the rows");
    plan.token_steps = std::make_shared<layout::TokenSteps>(
        layout::TokenBudget{optimization.tokens_per_batch, data_ranks * plan.accumulation, quadratic_cost}, longest,
        length, resume.step, resume.samples);
  } else {
    const std::string why = why_steps_are_whole(config, plan);
    if (plan.train_blocks < rows && !why.empty()) refuse_fewer_rows_than_a_step(plan, why);
    plan.steps_end_with_epochs = why.empty();
  }
  if (!optimization.batch_size_schedule.empty()) {
    const layout::BatchRamp ramp = layout::parse_batch_ramp(optimization.batch_size_schedule);
    layout::check_batch_ramp(ramp, rows, data_ranks);
    plan.segments = growing_steps(plan, ramp);
  }

  if (output.ignore_data_skip) plan.repeated_rows = plan.resumed_samples % plan.train_blocks;

  plan.num_train_epochs = optimization.num_train_epochs;
  plan.total_steps = steps_of_run(optimization, plan);
  plan.warmup_steps = warmup_steps(optimization, plan.total_steps);

  set_intervals(plan, output, has_validation);
  return plan;
}

}  // namespace tessera::train
