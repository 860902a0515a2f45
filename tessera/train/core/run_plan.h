#pragma once
/// \file
/// The arithmetic of a run: which rows belong to a micro-batch, how many steps there are, and what happens after each.
/// Pure functions; no files, no tensors.

#include <tessera/layout/batch/shares.h>
#include <tessera/layout/batch/token_batches.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {
struct OptimizationConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::checkpoint {
struct RunState;
}

namespace tessera::train {

/// Rows are positions in the sample order (data::Sampler), counted over all epochs. A step takes the next
/// rows_per_step() rows: micro-batch a of a step takes data_ranks x batch_size rows, of which rank r takes the r-th
/// contiguous share. So the rows of a step depend only on the product of the three numbers. A step that is about to be
/// taken counts from 0; "steps done" counts from 1. --batch_size_schedule: early steps have fewer rows, a multiple of
/// data_ranks, in micro-batches of at most batch_size rows. --balance_batches: the boundaries between ranks move, the
/// rows of a step do not. --tokens_per_batch: a step has as many rows as its micro-batches have room for in tokens
/// (layout/batch/token_batches.h).
struct RunPlan {
  std::int64_t data_ranks = 1;    ///< ranks with their own rows: all, divided by tp and cp
  std::int64_t batch_size = 1;    ///< rows per rank and micro-batch
  std::int64_t accumulation = 1;  ///< micro-batches per step
  std::int64_t train_blocks = 1;  ///< rows per epoch
  std::int64_t dropped_rows = 0;  ///< rows of each epoch's order that are dropped (dataloader_drop_last)

  /// The last step of an epoch has only the remaining rows, and the next step starts the next epoch, as transformers
  /// counts (trainer.py, set_initial_training_values). Otherwise steps cross the ends of epochs.
  bool steps_end_with_epochs = false;
  /// an epoch's last step has as many micro-batches as the others, some of them empty
  bool equal_micro_batches = false;

  /// --batch_size_schedule: steps with fewer rows than rows_per_step() come first; empty: no schedule.
  struct Segment {
    std::int64_t step = 0, samples = 0;  ///< where it starts
    std::int64_t rows = 0;               ///< per step
  };
  std::vector<Segment> segments = {};
  std::shared_ptr<layout::TokenSteps> token_steps = nullptr;  ///< --tokens_per_batch

  double num_train_epochs = 0;       ///< as requested; max_steps can make it larger or smaller
  std::int64_t total_steps = 0;      ///< steps of the whole run, including those before a resume
  std::int64_t warmup_steps = 0;     ///< warmup steps at the start of the schedule
  std::int64_t resumed_step = 0;     ///< steps done when this process started
  std::int64_t resumed_samples = 0;  ///< rows consumed by then
  std::int64_t repeated_rows = 0;    ///< rows repeated after a resume (ignore_data_skip: since the epoch began)

  std::int64_t logging_steps = 10;  ///< 0: not by steps
  std::int64_t eval_every = 0;      ///< likewise
  std::int64_t save_every = 0;      ///< 0: not by steps
  double eval_delay = 0;            ///< steps (eval_at_epoch: epochs) before the first evaluation, except at the end
  /// Whether to log after step 1, after the last step of an epoch, and after the last step of the run.
  bool log_first = false, log_at_epoch = false, log_at_end = true;
  bool eval_at_epoch = false, eval_at_end = false;  ///< in addition to, or instead of, eval_every
  bool save_at_epoch = false, save_at_end = false;  ///< in addition to, or instead of, save_every

  /// Rows of the full batch. (Not used with token_steps, whose steps vary.)
  std::int64_t rows_per_step() const { return data_ranks * batch_size * accumulation; }
  std::int64_t rows_of_step(std::int64_t step) const { return samples(step + 1) - samples(step); }  ///< over all ranks
  /// Micro-batches of a step on each rank.
  std::int64_t micro_batches(std::int64_t step) const;
  std::int64_t ranks_with_rows(std::int64_t step) const;          ///< data-parallel ranks that have rows in the step
  std::int64_t micro_batches_with_rows(std::int64_t step) const;  ///< micro-batches with rows, summed over these ranks
  std::int64_t steps_per_epoch() const { return (train_blocks + rows_per_step() - 1) / rows_per_step(); }
  /// Rows consumed when `steps` steps are done.
  std::int64_t samples(std::int64_t steps) const;
  /// Passes over the data after `steps` steps: counted in micro-batches if steps end with epochs (trainer.py,
  /// state.epoch), otherwise in rows.
  double epoch(std::int64_t steps) const;
  /// First of the batch_size rows of `rank` in micro-batch `micro` of step `step` (from 0).
  std::int64_t first_row(std::int64_t step, std::int64_t micro, std::int64_t rank) const;
  /// The rows of a micro-batch as positions in the sample order, when rank r takes shares[r] rows of the step. Not with
  /// token_steps.
  layout::RowRange rows_of(std::int64_t step, std::int64_t micro, std::int64_t rank,
                           const std::vector<std::int64_t>& shares) const;
  std::vector<std::int64_t> equal_shares(std::int64_t step) const {
    return layout::equal_shares(rows_of_step(step), data_ranks);
  }

  bool ends_epoch(std::int64_t steps) const;       ///< step number `steps` contains the last row of an epoch
  bool logs_after(std::int64_t steps) const;       ///< here and below: after `steps` steps
  bool evaluates_after(std::int64_t steps) const;  ///< also at the end, if there are rows to evaluate
  bool saves_after(std::int64_t steps) const;      ///< excluding saves for a best evaluation

  /// Writes the plan's values after `steps` steps for a checkpoint: step, samples, epoch, max_steps, num_train_epochs,
  /// train_batch_size and the intervals. Leaves the rest of `state` unchanged.
  void write_to(checkpoint::RunState& state, std::int64_t steps) const;
};

/// Seed of the row order: data_seed if set, otherwise seed.
std::uint64_t sampling_seed(const RunConfig& config);

/// warmup_steps if set, otherwise warmup_ratio times all steps.
std::int64_t warmup_steps(const OptimizationConfig& config, std::int64_t total_steps);

/// The starting point of a resumed run.
struct ResumePoint {
  std::int64_t step = 0, samples = 0;  ///< steps done and rows consumed
};

/// Tokens of the i-th sample of a run; needed for --tokens_per_batch.
using SampleLength = std::function<std::int64_t(std::int64_t sample)>;

/// Epochs become steps as transformers counts them: ceil(num_train_epochs x ceil(train_blocks / rows_per_step));
/// max_steps > 0 wins. The last step of an epoch has the remaining rows, of which a rank may have none. Settings that
/// need full steps (why_steps_are_whole()) let steps cross the ends of epochs instead, and throw InputError with the
/// numbers if an epoch has fewer rows than one step. With dataloader_drop_last an epoch has only the rows that fill
/// micro-batches of all ranks. Shares of all steps (warmup_ratio when warmup_steps is 0; logging_steps, eval_steps,
/// save_steps below 1) become ceil(total x share), as in transformers (TrainingArguments.get_warmup_steps,
/// TrainerState.compute_steps). Steps of
/// --tokens_per_batch are counted one by one. `longest`: maximum tokens of a row.
RunPlan make_run_plan(const RunConfig& config, std::int64_t data_ranks, std::int64_t train_blocks, bool has_validation,
                      ResumePoint resume = {}, const SampleLength& length = {}, std::int64_t longest = 0,
                      double quadratic_cost = 0);

/// Names the setting that needs steps with equal numbers of rows, and why; empty if no setting does.
std::string why_steps_are_whole(const RunConfig& config, const RunPlan& plan);

}  // namespace tessera::train
