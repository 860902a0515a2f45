#include <tessera/train/core/run_plan.h>

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/base/plural.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/core/run_config.h>
#include <tessera/layout/batch/ramp.h>

namespace tessera::train {

std::int64_t RunPlan::samples(std::int64_t steps) const {
  if (token_steps) return token_steps->begin(steps);
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), steps, [](auto step, const auto& s) { return step < s.step; });
  if (after == segments.begin()) return resumed_samples + (steps - resumed_step) * rows_per_step();
  const Segment& segment = *(after - 1);
  return segment.samples + (steps - segment.step) * segment.rows;
}

std::int64_t RunPlan::micro_batches(std::int64_t step) const {
  if (segments.empty()) return accumulation;
  const std::int64_t own = (rows_of_step(step) + data_ranks - 1) / data_ranks;  // the first rank has most
  return (own + batch_size - 1) / batch_size;
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

bool RunPlan::ends_epoch(std::int64_t steps) const {
  return steps > resumed_step && samples(steps) / train_blocks > samples(steps - 1) / train_blocks;
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

/// A setting that is a number of steps, or below 1 a share of all.
std::int64_t steps_of(double setting, std::int64_t total) {
  return static_cast<std::int64_t>(setting < 1 ? std::ceil(static_cast<double>(total) * setting) : setting);
}

/// The steps of a growing batch from where the run begins, those of the full batch as the last segment.
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

/// One step per epoch; the first after a resumption ends the epoch that it stopped in.
std::vector<RunPlan::Segment> epochs_as_steps(const RunPlan& plan) {
  const std::int64_t rest = plan.train_blocks - plan.resumed_samples % plan.train_blocks;
  std::vector<RunPlan::Segment> segments = {{plan.resumed_step, plan.resumed_samples, rest}};
  if (rest < plan.train_blocks)
    segments.push_back({plan.resumed_step + 1, plan.resumed_samples + rest, plan.train_blocks});
  return segments;
}

/// Why fewer rows than a step takes are no step here; empty: they are.
std::string needs_whole_steps(const RunConfig& config, const RunPlan& plan) {
  const auto& o = config.optimization;
  const std::int64_t micro_batches = plan.micro_batches(plan.resumed_step + 1);
  const bool all_have_rows = plan.train_blocks / plan.data_ranks >= micro_batches;
  if (plan.train_blocks < 1) return "there is none";
  if (config.data.dataloader_drop_last) return "--dataloader_drop_last leaves out steps that are not whole";
  if (config.parallel.deterministic_reduce) return "--deterministic_reduce adds up the same micro-batches in each step";
  if (!o.batch_size_schedule.empty()) return "--batch_size_schedule says how many rows a step has";
  if (o.balance_batches && !all_have_rows) return "--balance_batches gives each process rows of each micro-batch";
  if (o.preference_loss != PreferenceLoss::none && !all_have_rows)
    return "--preference_loss needs pairs for each process and micro-batch";
  return "";
}

/// Steps until so many rows are consumed.
std::int64_t steps_until(const RunPlan& plan, double rows) {
  const auto consumed = [&](std::int64_t steps) { return static_cast<double>(plan.samples(steps)); };
  std::int64_t steps = plan.resumed_step;
  if (!plan.token_steps && !plan.segments.empty()) {
    const RunPlan::Segment& full = plan.segments.back();
    if (const double rest = rows - static_cast<double>(full.samples); rest > 0)
      return full.step + static_cast<std::int64_t>(std::ceil(rest / static_cast<double>(full.rows)));
  }
  while (consumed(steps) < rows) ++steps;
  return steps;
}

}  // namespace

RunPlan make_run_plan(const RunConfig& config, std::int64_t data_ranks, std::int64_t train_blocks, bool has_validation,
                      ResumePoint resume, const SampleLength& length, std::int64_t longest, double quadratic_cost,
                      bool small_steps) {
  const auto& optimization = config.optimization;
  const auto& output = config.output;
  RunPlan plan;
  plan.data_ranks = data_ranks;
  plan.batch_size = optimization.per_device_train_batch_size;
  plan.accumulation = optimization.gradient_accumulation_steps;
  plan.train_blocks = train_blocks;
  plan.resumed_step = resume.step;
  plan.resumed_samples = resume.samples;
  const std::int64_t rows = plan.rows_per_step();
  if (optimization.tokens_per_batch > 0) {
    TESSERA_CHECK(length, "batches of tokens without the lengths of the rows");
    plan.token_steps = std::make_shared<layout::TokenSteps>(
        layout::TokenBudget{optimization.tokens_per_batch, data_ranks * plan.accumulation, quadratic_cost}, longest,
        length, resume.step, resume.samples);
  } else if (train_blocks < rows) {
    if (train_blocks > 0) plan.segments = epochs_as_steps(plan);
    const std::string why = small_steps ? needs_whole_steps(config, plan) : "";
    if (!small_steps || !why.empty())
      throw InputError(concat(
          "the training data has ", plural(train_blocks, "row"), " but one step takes ", rows, " (",
          plural(data_ranks, "process", "processes"), " x ", plural(plan.batch_size, "row"), " x ",
          plural(plan.accumulation, "micro-batch", "micro-batches"), ")", why.empty() ? "" : concat(", and ", why),
          ": lower --per_device_train_batch_size, --gradient_accumulation_steps or --block_size, or "
          "give more text"));
  }
  if (!optimization.batch_size_schedule.empty()) {
    const layout::BatchRamp ramp = layout::parse_batch_ramp(optimization.batch_size_schedule);
    layout::check_batch_ramp(ramp, rows, data_ranks);
    plan.segments = growing_steps(plan, ramp);
  }

  if (config.data.dataloader_drop_last) {
    plan.dropped_rows = train_blocks % rows;
    plan.train_blocks = train_blocks - plan.dropped_rows;
  }
  if (output.ignore_data_skip) plan.repeated_rows = plan.resumed_samples % plan.train_blocks;

  plan.num_train_epochs = optimization.num_train_epochs;
  if (optimization.max_steps > 0) {
    plan.total_steps = optimization.max_steps;
  } else {
    const double all_rows = optimization.num_train_epochs * static_cast<double>(plan.train_blocks);
    const double rest = std::max(0.0, all_rows - static_cast<double>(resume.samples));
    plan.total_steps = plan.token_steps || !plan.segments.empty()
                           ? steps_until(plan, all_rows)
                           : resume.step + static_cast<std::int64_t>(std::ceil(rest / static_cast<double>(rows)));
  }
  plan.warmup_steps = warmup_steps(optimization, plan.total_steps);

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
  return plan;
}

}  // namespace tessera::train
