#include <tessera/train/loop/step_rows.h>

#include <utility>

#include <tessera/parallel/context/batch.h>
#include <tessera/train/core/random_key.h>

namespace tessera::train {

StepRows::StepRows(const Setup& setup, const Objective& objective)
    : setup_(setup),
      objective_(objective),
      sampler_(setup.config.data.train_sampling_strategy, *setup.datasets.train, sampling_seed(setup.config),
               setup.plan.rows_per_step(), setup.plan.batch_size) {}

std::vector<data::Batch> StepRows::read(std::int64_t step) {
  std::vector<data::Batch> batches;
  const RunGroups& groups = setup_.groups;
  const std::vector<std::int64_t>& by_rank = shares().begin_step(setup_.plan, step);
  if (setup_.plan.token_steps)
    batches = read_token_batches(step);
  else
    for (std::int64_t micro = 0; micro < setup_.plan.micro_batches(step); ++micro)
      batches.push_back(read_rows(step, micro, by_rank));
  for (data::Batch& batch : batches) {
    batch.random_key = random_key(static_cast<std::uint64_t>(setup_.config.optimization.seed), step, 0);
    if (groups.cuts()) batch = data::filled_up(batch, groups.filled_length(batch.ids.size(1)));
    if (groups.context_ranks() > 1) batch = cut_batch(batch, groups.context, setup_.model->objective());
  }
  return batches;
}

data::Batch StepRows::read_rows(std::int64_t step, std::int64_t micro, const std::vector<std::int64_t>& shares) const {
  const layout::RowRange rows = setup_.plan.rows_of(step, micro, setup_.groups.place, shares);
  if (rows.count == 0) return idle_batch(step);
  data::Batch batch = data::make_batch(*setup_.datasets.train, sampler_, rows.begin, rows.count);
  batch.first_row = rows.begin;
  return objective_.arranged(std::move(batch));
}

/// A batch for a rank without rows in a small step. Other ranks may hold parts of the model, so the rank must take part
/// in the collectives; its result is ignored.
data::Batch StepRows::idle_batch(std::int64_t step) const {
  const std::int64_t row = setup_.plan.first_row(step, 0, 0);
  data::Batch batch = data::make_batch(*setup_.datasets.train, sampler_, row, 1);
  batch.first_row = row;
  batch = objective_.arranged_idle(std::move(batch));
  batch.counts = false;
  batch.scored_tokens = batch.tokens = batch.labels_not_ignored = 0;
  return batch;
}

/// For --tokens_per_batch. Rows are numbered in the order of the step's micro-batches.
std::vector<data::Batch> StepRows::read_token_batches(std::int64_t step) const {
  const RunPlan& plan = setup_.plan;
  const std::vector<layout::TokenBatch> all = plan.token_steps->batches(step);
  const std::int64_t begin = plan.samples(step);
  std::vector<data::Batch> own;
  for (const std::size_t i : layout::batches_of_rank(all.size(), plan.data_ranks, setup_.groups.place)) {
    std::vector<std::int64_t> samples = all[i].rows;
    for (std::int64_t& sample : samples) sample += begin;
    own.push_back(data::make_batch(*setup_.datasets.train, sampler_, samples, begin + all[i].first));
    own.back().first_row = begin + all[i].first;
  }
  return own;
}

}  // namespace tessera::train
