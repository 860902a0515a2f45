// Runs one step: the agreement between ranks, forward and backward.

#include <tessera/train/loop/training_loop.h>

#include <ATen/ATen.h>

#include <optional>

#include <tessera/base/clock.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/nn/accumulate.h>
#include <tessera/nn/allocator.h>
#include <tessera/train/loop/batch_size.h>

namespace tessera::train {

/// Sums the counts of the step over all ranks (the loss is divided by the scored tokens), and determines whether any
/// rank was asked to stop and whether all ranks have written their parts of a checkpoint.
TrainingLoop::Agreement TrainingLoop::agree_on_step(const std::vector<data::Batch>& batches) {
  const comm::Tag tag("step");
  const StepCounts own = count(batches);
  const StopRequest asked = stop_requested();
  std::vector<std::int64_t> numbers = {own.scored_tokens,
                                       own.tokens,
                                       own.labels_not_ignored,
                                       std::int64_t{asked == StopRequest::terminate},
                                       std::int64_t{asked == StopRequest::interrupt},
                                       own.inputs,
                                       std::int64_t{checkpoints_.ended()}};
  const std::size_t counted = numbers.size();
  for (const std::int64_t number : rows_.shares().own_numbers()) numbers.push_back(number);
  comm::all_reduce_numbers(world_.group(), numbers);
  const std::vector<std::int64_t>& sums = numbers;
  rows_.shares().take_numbers(sums.data() + counted);
  if (sums[0] == 0) throw Error(concat("step ", step_ + 1, ": no token of the batch is scored (all labels are -100)"));
  const std::int64_t same = ranks_with_same_loss(setup_.groups);  // these ranks have each counted the same rows
  return {{sums[0] / same, sums[1] / same, sums[2] / same, sums[5] / same},
          sums[4] > 0   ? StopRequest::interrupt
          : sums[3] > 0 ? StopRequest::terminate
                        : StopRequest::none,
          sums[6] == world_.size()};
}

/// For --exit_duration_in_mins. A run takes at least one step, so that it makes progress even if each resumed run exits
/// early.
bool TrainingLoop::time_is_over() const {
  const double minutes = setup_.config.optimization.exit_duration_in_mins;
  return minutes > 0 && step_ > plan().resumed_step && seconds_since_process_start() >= 60 * minutes;
}

StopRequest TrainingLoop::stop_requested() const {
  const StopRequest asked = signals_.requested();
  return asked == StopRequest::none && time_is_over() ? StopRequest::terminate : asked;
}

/// The stop request of any rank, checked between steps. Collective.
StopRequest TrainingLoop::stop_of_all() const {
  const StopRequest own = stop_requested();
  std::vector<std::int64_t> asked = {std::int64_t{own == StopRequest::terminate},
                                     std::int64_t{own == StopRequest::interrupt}};
  if (world_.size() > 1) comm::all_reduce_numbers(world_.group(), asked);
  if (asked[1] > 0) return StopRequest::interrupt;
  return asked[0] > 0 ? StopRequest::terminate : StopRequest::none;
}

/// The loss of a step is the mean over its scored tokens, whichever rank they are on, so each share is divided by the
/// count over all ranks and micro-batches, and the reduction is a sum. Without average_tokens_across_devices it is the
/// mean, over the ranks that have rows, of the mean over the rank's own scored tokens.
LossScales TrainingLoop::loss_scales(const std::vector<data::Batch>& batches, const StepCounts& all_ranks) const {
  const double share = 1.0 / static_cast<double>(all_ranks.scored_tokens), factor = model_.core.loss_factor();
  if (setup_.config.optimization.average_tokens_across_devices) return {.scale = share * factor};
  const std::int64_t own = count(batches).scored_tokens;
  const double ranks = static_cast<double>(setup_.groups.gradients.size() * plan().ranks_with_rows(step_)) /
                       static_cast<double>(plan().data_ranks);
  const double own_share = own == 0 ? 0 : 1.0 / (static_cast<double>(own) * ranks);
  // A sum over ranks of cross-entropies times `logged`, divided by all scored tokens, is the mean of the means.
  return {.scale = own_share * factor, .logged = own_share / share};
}

/// Runs forward and backward of each micro-batch.
void TrainingLoop::compute_gradients(const std::vector<data::Batch>& batches, const StepCounts& all_ranks) {
  const LossScales scales = loss_scales(batches, all_ranks);
  StepCore& core = model_.core;
  core.zero_grad();
  // Each micro-batch has the same weight in the routers' losses, however many tokens are scored in it.
  setup_.model->set_auxiliary_scale(core.loss_factor() / static_cast<double>(plan().micro_batches_with_rows(step_)));
  std::optional<nn::AccumulateInPlace> in_place;  // in fixed order each micro-batch's gradient is formed separately
  if (!setup_.config.parallel.deterministic_reduce) in_place.emplace();
  setup_.features.each(&RunFeature::begin_step, StepStart{step_, scales.scale, core.loss_factor()});
  passes_->compute(batches, step_, scales);
}

/// A micro-batch of rows of maximum length.
data::Batch TrainingLoop::largest_batch() {
  const std::int64_t length = setup_.datasets.train->max_length();
  data::Batch batch;
  const std::int64_t rows = plan().batch_size * objective().rows_of_sample();
  batch.ids = at::zeros({rows, length}, at::kLong);
  const bool classes = setup_.model->objective() == data::Objective::Kind::row_class;
  batch.labels = at::full({rows, length}, classes ? -100 : 0, at::kLong);
  batch.labels.select(1, 0).fill_(0);
  if (const auto image = setup_.model->image_input(); image && length >= image->tokens) {  // one per row
    batch.ids.narrow(1, 0, image->tokens).fill_(image->token);
    // The images of all micro-batches are in memory, as in a step.
    batch.images = at::zeros({rows * plan().accumulation, 3, image->side, image->side}).narrow(0, 0, rows);
  }
  return batch;
}

bool TrainingLoop::fits() {
  const bool fit = fits_everywhere(world_.group(), [&] {
    const Sharded::NoSync only_here(model_.sharded());
    const data::Batch batch = largest_batch();
    model_.sharded().zero_grad();
    setup_.model->train();
    passes_->rehearse(batch);
    model_.sharded().zero_grad();
  });
  nn::release_unused_memory();  // the run starts as if it had been configured with this batch size
  return fit;
}

}  // namespace tessera::train
