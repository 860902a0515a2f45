#pragma once
/// \file
/// Assigns rows to the batches of each rank: how one pass over a dataset is distributed. Pure arithmetic on indices
/// with the semantics of accelerate's BatchSamplerShard (accelerate/data_loader.py).

#include <cstdint>
#include <vector>

namespace tessera::faces {

/// The number of rows and steps of an epoch, counted once for all faces.
struct BatchPlan {
  std::int64_t rows = 0;        ///< rows of the dataset
  std::int64_t batch_size = 1;  ///< rows of one rank; with split_batches: of all ranks together
  std::int64_t ranks = 1;       ///< ranks that share the rows
  bool drop_last = false;       ///< drops rows that do not fill a batch on every rank
  bool even_batches =
      true;  ///< the same number of full batches on every rank: the last round takes rows from the start of the pass
  bool split_batches = false;  ///< cuts a batch into `ranks` equal parts (ranks must divide batch_size) instead of
                               ///< giving it to rank i mod ranks

  std::int64_t rank_batch() const {
    return split_batches ? batch_size / ranks : batch_size;
  }  ///< rows of a full batch on one rank
  std::int64_t round() const { return rank_batch() * ranks; }  ///< rows of a full batch on all ranks

  /// Number of batches of the rank.
  std::int64_t batches(std::int64_t rank) const;
  /// The first ranks have the most batches, the last ones the fewest.
  std::int64_t most_batches() const { return batches(0); }
  std::int64_t fewest_batches() const { return batches(ranks - 1); }
  /// Positions in the pass [0, rows) of the rows of batch `batch` of `rank`, in order.
  std::vector<std::int64_t> positions(std::int64_t rank, std::int64_t batch) const;
  /// Rows of the last round, over all ranks, that are not repeats; 0: the last round is full.
  std::int64_t remainder() const { return drop_last ? 0 : rows % round(); }
};

/// Throws InputError for invalid numbers.
void check(const BatchPlan& plan);

}  // namespace tessera::faces
