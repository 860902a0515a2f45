#include <tessera/faces/batch_plan.h>

#include <algorithm>

#include <tessera/base/error.h>

namespace tessera::faces {

void check(const BatchPlan& plan) {
  if (plan.rows < 0 || plan.batch_size < 1)
    throw InputError(concat("data loader: ", plan.rows, " rows in batches of ", plan.batch_size,
                            ": a batch must have at least one row"));
  if (plan.split_batches && plan.batch_size % plan.ranks != 0)
    throw InputError(concat("data loader: split_batches cuts batches of ", plan.batch_size, " rows among ", plan.ranks,
                            " processes, but the size is not divisible: choose a multiple of ", plan.ranks,
                            " as the batch size"));
}

std::int64_t BatchPlan::batches(std::int64_t rank) const {
  const std::int64_t full_rounds = rows / round(), rest = rows % round();
  if (drop_last || rest == 0) return full_rounds;
  if (even_batches) return full_rounds + 1;
  return full_rounds + (rank * rank_batch() < rest ? 1 : 0);
}

std::vector<std::int64_t> BatchPlan::positions(std::int64_t rank, std::int64_t batch) const {
  TESSERA_CHECK(batch >= 0 && batch < batches(rank), "batch ", batch, " of ", batches(rank));
  // Both ways of distributing give round r to the ranks in order, rank_batch() rows each: the i-th batch of
  // rank_batch() rows goes to rank i mod ranks.
  const std::int64_t begin = batch * round() + rank * rank_batch();
  const std::int64_t end = even_batches ? begin + rank_batch() : std::min(begin + rank_batch(), rows);
  std::vector<std::int64_t> positions;
  for (std::int64_t k = begin; k < end; ++k) positions.push_back(k < rows ? k : (k - rows) % std::min(rows, round()));
  return positions;
}

}  // namespace tessera::faces
