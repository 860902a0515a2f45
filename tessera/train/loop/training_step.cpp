// One step: rows, forward and backward, the update.

#include <tessera/train/loop/training_loop.h>

#include <ATen/ATen.h>

#include <tessera/base/log.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/recorder.h>
#include <tessera/data/pairs.h>
#include <tessera/nn/accumulate.h>
#include <tessera/nn/allocator.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/context/batch.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/loop/batch_size.h>
#include <tessera/train/loop/evaluate.h>
#include <tessera/train/loop/random_key.h>

namespace tessera::train {

/// This rank's micro-batches of the next step.
std::vector<data::Batch> TrainingLoop::read_step() {
  std::vector<data::Batch> batches;
  const RunGroups& groups = setup_.groups;
  if (balance_) balance_->begin_step(plan_, step_);
  if (plan_.token_steps)
    batches = read_token_batches();
  else
    for (std::int64_t micro = 0; micro < plan_.micro_batches(step_); ++micro) batches.push_back(read_rows(micro));
  for (data::Batch& batch : batches) {
    batch.random_key = random_key(static_cast<std::uint64_t>(setup_.config.optimization.seed), step_, 0);
    if (groups.cuts()) batch = data::filled_up(batch, groups.filled_length(batch.ids.size(1)));
    if (groups.context_ranks() > 1) batch = cut_batch(batch, groups.context, setup_.model->objective());
  }
  return batches;
}

data::Batch TrainingLoop::read_rows(std::int64_t micro) const {
  const layout::RowRange rows =
      plan_.rows_of(step_, micro, setup_.groups.place, balance_ ? balance_->shares() : plan_.equal_shares(step_));
  if (rows.count == 0) return idle_batch();
  data::Batch batch = data::make_batch(*setup_.datasets.train, sampler_, rows.begin, rows.count);
  batch.first_row = rows.begin;
  return preferences_ ? data::as_pairs(batch) : batch;
}

/// For a rank that a small step has no row for: it computes along, since parts of the model may be elsewhere, and what
/// comes out counts for nothing.
data::Batch TrainingLoop::idle_batch() const {
  const std::int64_t row = plan_.first_row(step_, 0, 0);
  data::Batch batch = data::make_batch(*setup_.datasets.train, sampler_, row, 1);
  batch.first_row = row;
  if (preferences_)
    batch = data::as_pairs(batch);
  else
    batch.labels.fill_(data::not_scored);
  batch.counts = false;
  batch.scored_tokens = batch.tokens = batch.labels_not_ignored = 0;
  return batch;
}

/// --tokens_per_batch. Rows are numbered as they lie in the step's micro-batches.
std::vector<data::Batch> TrainingLoop::read_token_batches() const {
  const std::vector<layout::TokenBatch> all = plan_.token_steps->batches(step_);
  const std::int64_t begin = plan_.samples(step_);
  std::vector<data::Batch> own;
  for (const std::size_t i : layout::batches_of_rank(all.size(), plan_.data_ranks, setup_.groups.place)) {
    std::vector<std::int64_t> samples = all[i].rows;
    for (std::int64_t& sample : samples) sample += begin;
    own.push_back(data::make_batch(*setup_.datasets.train, sampler_, samples, begin + all[i].first));
    own.back().first_row = begin + all[i].first;
  }
  return own;
}

/// The counts of the whole step, whose scored tokens the loss is divided by, whether anyone was asked to stop, and
/// whether all have written their parts of a checkpoint.
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
  if (balance_)
    for (const std::int64_t number : balance_->own_numbers()) numbers.push_back(number);
  at::Tensor all = at::tensor(numbers, at::kLong).to(world_.device());
  world_.group().all_reduce(all).wait();
  all = all.cpu();
  const auto* sums = all.data_ptr<std::int64_t>();
  if (balance_) balance_->take_numbers(sums + counted);
  if (sums[0] == 0) throw Error(concat("step ", step_ + 1, ": no token of the batch is scored (all labels are -100)"));
  const std::int64_t same = std::int64_t{setup_.groups.tensor_ranks()} *
                            setup_.groups.pipeline_ranks();  // so many ranks have counted the same rows
  return {{sums[0] / same, sums[1] / same, sums[2] / same, sums[5] / same},
          sums[4] > 0   ? StopRequest::interrupt
          : sums[3] > 0 ? StopRequest::terminate
                        : StopRequest::none,
          sums[6] == world_.size()};
}

/// --exit_duration_in_mins, which leaves a run one step at least, so that it gets on however often it is resumed.
bool TrainingLoop::time_is_over() const {
  const double minutes = setup_.config.optimization.exit_duration_in_mins;
  return minutes > 0 && step_ > plan_.resumed_step && seconds_since_process_start() >= 60 * minutes;
}

StopRequest TrainingLoop::stop_requested() const {
  const StopRequest asked = signals_.requested();
  return asked == StopRequest::none && time_is_over() ? StopRequest::terminate : asked;
}

/// Forward and backward of each micro-batch. The loss of the step is the mean over its scored tokens, wherever they
/// are, so each share is divided by the count of all ranks and micro-batches, and the reduction is a sum. The last
/// backward reduces; in fixed order each does. Without average_tokens_across_devices it is the mean, over the
/// ranks that have rows, of the mean over the rank's own scored tokens.
void TrainingLoop::compute_gradients(const std::vector<data::Batch>& batches, const StepCounts& all_ranks) {
  double share = 1.0 / static_cast<double>(all_ranks.scored_tokens), logged = 1;
  if (!setup_.config.optimization.average_tokens_across_devices) {
    const std::int64_t own = count(batches).scored_tokens;
    const double ranks = static_cast<double>(setup_.groups.gradients.size() * plan_.ranks_with_rows(step_)) /
                         static_cast<double>(plan_.data_ranks);
    const double own_share = own == 0 ? 0 : 1.0 / (static_cast<double>(own) * ranks);
    logged = own_share /
             share;  // a sum over ranks of cross-entropies times this, by all scored tokens, is the mean of the means
    share = own_share;
  }
  const double scale = share * core_.loss_factor();
  core_.zero_grad();
  // Each micro-batch counts alike in the routers' losses, whatever is scored in it.
  setup_.model->set_auxiliary_scale(core_.loss_factor() / static_cast<double>(plan_.micro_batches_with_rows(step_)));
  setup_.model->take_router_statistics();  // a trial before the first step left some
  setup_.model->take_prediction_losses();
  std::optional<nn::AccumulateInPlace> in_place;  // in fixed order each micro-batch's gradient is formed by itself
  if (!setup_.config.parallel.deterministic_reduce) in_place.emplace();
  if (setup_.fp8) setup_.fp8->begin_step();  // a trial before the first step left some largest values
  if (setup_.compression) setup_.compression->begin_step();
  micro_batches_ += plan_.micro_batches_with_rows(step_);
  if (small_) small_->begin_step(scale);
  if (pipeline_) return compute_in_pipeline(batches, scale, logged);
  for (std::size_t micro = 0; micro < batches.size(); ++micro) {
    enter(Phase::forward);
    core_.expect_step(micro + 1 == batches.size());
    key_random_numbers(world_.device(), static_cast<std::uint64_t>(setup_.config.optimization.seed), step_,
                       batches[micro].first_row);
    if (routing_) routing_->begin_batch(batches[micro]);
    if (small_ && batches[micro].counts) small_->add_rows(batches[micro].ids.size(0), batches[micro].scored_tokens);
    const at::Tensor loss = [&] {
      const nn::Autocast precision(training_precision(setup_.config), world_.device().type());
      const data::Batch batch = to_device(batches[micro], world_.device());
      if (!preferences_) return setup_.model->loss(batch, scale);
      return batch.counts ? preferences_->loss(*setup_.model, sampler_, batch, scale)
                          : preferences_->trial_loss(*setup_.model, batch);
    }();
    enter(Phase::backward);
    core_.backward(loss);
    if (small_) count_squares(micro);
    // Ranks of tp have the same loss; what they log is added up.
    window_.add_loss(scale == 0 ? 0 : loss.item<double>() / scale * logged / setup_.groups.tensor_ranks());
    predictions_.add(setup_.model->take_prediction_losses(), 1 / (core_.loss_factor() * setup_.groups.tensor_ranks()));
  }
}

/// --gradient_noise_scale, after each backward. One process reduces nothing: its first micro-batch is the small batch.
void TrainingLoop::count_squares(std::size_t micro) {
  if (setup_.groups.gradients.size() == 1 && micro == 0) {
    const double norm = sharded_->grad_norm();
    small_->add_squares(norm * norm);
  }
  small_->end_backward();
}

/// This rank's part of the step's estimates, whose sum over the ranks is meant; the norm of all is told by rank 0.
void TrainingLoop::count_noise() {
  const int ranks = setup_.groups.gradients.size();
  const auto big = static_cast<double>(plan_.rows_of_step(step_));
  if (!std::isfinite(grad_norm_) || small_->count() == 0) return;
  const double rows = ranks == 1 ? static_cast<double>(small_->rows()) : big;
  // The small batches of all ranks: their micro-batches where each backward reduces, else all of a rank together.
  const bool each_reduces = small_->count() > 1;
  const std::int64_t of_data = each_reduces ? plan_.micro_batches_with_rows(step_) : plan_.ranks_with_rows(step_);
  const double batches = ranks == 1 ? static_cast<double>(small_->count())
                                    : static_cast<double>(ranks * of_data) / static_cast<double>(plan_.data_ranks);
  const double small = rows / batches;
  if (small >= big) return;
  const NoiseEstimate own =
      noise_estimate(small_->weighted() / rows, small, world_.rank() == 0 ? grad_norm_ * grad_norm_ : 0, big);
  noise_sums_.squared_norm += own.squared_norm;
  noise_sums_.trace += own.trace;
}

/// The same with stages of the model on several ranks: one reduction, when all micro-batches are through; in fixed
/// order one in each backward.
void TrainingLoop::compute_in_pipeline(const std::vector<data::Batch>& batches, double scale, double logged) {
  key_random_numbers(world_.device(), static_cast<std::uint64_t>(setup_.config.optimization.seed), step_,
                     plan_.first_row(step_, 0, setup_.groups.place));
  std::vector<double> losses;
  {
    std::optional<Sharded::AccumulateLocally> together;
    if (!setup_.config.parallel.deterministic_reduce) together.emplace(*sharded_);
    losses = pipeline_->train(batches, scale);
  }
  const double share = !one_tells_loss()                    ? 1.0 / ranks_with_same_loss()
                       : setup_.groups.pipeline.rank() == 0 ? 1.0
                                                            : 0.0;
  for (const double loss : losses) window_.add_loss(scale == 0 ? 0 : loss / scale * logged * share);
  // Told by the rank of the last stage alone; ranks of tp have the same.
  predictions_.add(setup_.model->take_prediction_losses(), 1 / (core_.loss_factor() * setup_.groups.tensor_ranks()));
  enter(Phase::backward, "reduce");
  if (!setup_.config.parallel.deterministic_reduce) sharded_->reduce();
  pipeline_->add_tied_gradients(*sharded_);
  core_.gradients_changed();
  comm::heartbeat().advance();
}

/// The largest values of the step on all ranks decide the scales of later ones, once per step as Transformer Engine has
/// it. Collective.
void TrainingLoop::end_fp8_step() {
  if (!setup_.fp8 || !setup_.fp8->keeps_history()) return;
  const comm::Tag tag("fp8");
  world_.group().all_reduce(setup_.fp8->noted(), comm::Reduction::max).wait();
  setup_.fp8->end_step();
}

/// Ranges of inputs that run on are those of all ranks. Collective.
void TrainingLoop::end_compression_step() {
  if (!setup_.compression || !setup_.compression->keeps_ranges()) return;
  const comm::Tag tag("input ranges");
  world_.group().all_reduce(setup_.compression->noted(), comm::Reduction::max).wait();
  setup_.compression->end_step();
}

/// Clipping and the optimizer step in one pass over the gradients. A step whose gradients overflowed (--fp16) or are
/// not finite (--nan_policy skip) is skipped; returns whether it was taken.
bool TrainingLoop::update_weights() {
  end_fp8_step();
  end_compression_step();
  grad_norm_ = core_.gradient_norm();
  if (small_) count_noise();
  learning_rate_ = core_.update().learning_rates().front();
  const bool good = core_.loss_scale() != nullptr || check_norm();
  if (good) core_.clip_by(grad_norm_, setup_.config.optimization.max_grad_norm);
  enter(Phase::optimizer);
  if (!good) core_.end_step();
  const bool taken = good && core_.step();
  if (taken || !good) core_.step_schedule();  // skipped steps count in the schedule, but for those of --fp16
  return taken;
}

/// Every rank has the same norm, so all decide alike: whether the step may be taken. One tells what is wrong with it.
/// Collective where it is not finite.
bool TrainingLoop::check_norm() {
  if (std::isfinite(grad_norm_)) {
    skipped_in_a_row_ = 0;
    return true;
  }
  std::string where;
  try {
    sharded_->clip_grad_norm(0);
  } catch (const Error& error) {
    where = error.what();  // names rank and parameter
  }
  if (pipeline_)
    if (const std::string stage = pipeline_->first_not_finite(world_.group()); !stage.empty())
      where = concat(stage, where.empty() ? "" : "; ", where);
  const OutputConfig& output = setup_.config.output;
  if (output.nan_policy == NanPolicy::skip && ++skipped_in_a_row_ <= output.nan_skip_limit) {
    if (world_.rank() == 0)
      log::warning("step ", step_ + 1, " is skipped (--nan_policy skip; ", skipped_in_a_row_, " in a row, at most ",
                   output.nan_skip_limit, "): the gradient norm is ", format_real(grad_norm_),
                   "; weights and optimizer stay as they are", where.empty() ? "" : concat(" (", where, ")"));
    return false;
  }
  checkpoints_.finish();  // what is being written is of a step before this one, and good
  if (world_.rank() != 0) throw FailedElsewhere(ExitCode::failed);
  throw Error(concat("step ", step_ + 1, ": the gradient norm is ", format_real(grad_norm_),
                     output.nan_policy == NanPolicy::skip
                         ? concat(" after ", output.nan_skip_limit, " steps in a row that were skipped for the same")
                         : std::string(),
                     ": the training diverged. Lower --learning_rate (now ",
                     format_real(setup_.config.optimization.learning_rate),
                     "), add --warmup_steps, or clip with --max_grad_norm; the last checkpoint is unharmed",
                     where.empty() ? "" : concat(" (", where, ")")));
}

bool TrainingLoop::fits() {
  const bool fit = fits_everywhere(world_.group(), [&] {
    const Sharded::NoSync only_here(*sharded_);
    const std::int64_t length = row_tokens();
    data::Batch batch;
    const std::int64_t rows = plan_.batch_size * (preferences_ ? 2 : 1);
    batch.ids = at::zeros({rows, length}, at::kLong);
    const bool classes = setup_.model->objective() == data::Objective::Kind::row_class;
    batch.labels = at::full({rows, length}, classes ? -100 : 0, at::kLong);
    batch.labels.select(1, 0).fill_(0);
    if (const auto image = setup_.model->image_input(); image && length >= image->tokens) {  // one in each row
      batch.ids.narrow(1, 0, image->tokens).fill_(image->token);
      // Those of all micro-batches lie in memory, as in a step.
      batch.images = at::zeros({rows * plan_.accumulation, 3, image->side, image->side}).narrow(0, 0, rows);
    }
    sharded_->zero_grad();
    setup_.model->train();
    if (pipeline_) {
      const Sharded::AccumulateLocally together(*sharded_);
      pipeline_->rehearse({static_cast<std::size_t>(plan_.accumulation), batch});  // as in the largest step
      sharded_->zero_grad();
      return;
    }
    const at::Tensor loss = [&] {
      const nn::Autocast precision(training_precision(setup_.config), world_.device().type());
      const data::Batch there = to_device(batch, world_.device());
      return preferences_ ? preferences_->trial_loss(*setup_.model, there) : setup_.model->loss(there, 0);
    }();
    loss.backward();
    sharded_->zero_grad();
  });
  nn::release_unused_memory();  // the run begins as one of this batch size would
  return fit;
}

}  // namespace tessera::train
