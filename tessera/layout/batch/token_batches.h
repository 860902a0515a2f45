#pragma once
/// \file
/// Steps sized by tokens instead of rows: micro-batches of rows of unequal length, each with at most N tokens when its
/// rows are padded to the longest.
///
/// A step is M micro-batches over all ranks. It takes as many of the next rows in sample order as M micro-batches can
/// hold; these rows are sorted by length, longest first, and cut into M consecutive runs. (A run holds at most floor(N
/// / its longest) rows, so cutting sorted rows needs the fewest micro-batches.) Among the cuts within the bound, it
/// uses the one that minimizes the most expensive micro-batch, where a row of n tokens, padding included, costs n +
/// quadratic n^2. A step's rows and cut depend only on M and N, so every number of ranks with M micro-batches in total
/// takes the same steps.

#include <tessera/layout/batch/shares.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::layout {

/// Token limit of a micro-batch.
struct TokenBudget {
  std::int64_t tokens = 0;         ///< N per micro-batch, padding included
  std::int64_t micro_batches = 1;  ///< M per step, over all ranks
  double quadratic = 0;            ///< cost of a row of n tokens: n + quadratic n^2 (attention)
};

/// One micro-batch: the indices of its rows in the step, in batch order.
struct TokenBatch {
  std::vector<std::int64_t> rows;  ///< indices into the step's rows, which are in sample order
  std::int64_t longest = 0;        ///< tokens that every row is padded to
  std::int64_t first = 0;          ///< number of rows of the step in earlier micro-batches
  double cost = 0;                 ///< sum over its rows, see TokenBudget::quadratic
};

/// Cuts all rows of the given `lengths` into budget.micro_batches non-empty micro-batches. Returns an empty list if the
/// rows do not fit, or there are fewer rows than micro-batches. The most expensive ones come first.
std::vector<TokenBatch> cut_step(const std::vector<std::int64_t>& lengths, const TokenBudget& budget);

/// The micro-batches of a rank, in order: micro-batches of similar cost are adjacent, and ranks take turns getting the
/// more expensive one. Indices into the result of cut_step(); M is a multiple of `ranks`.
std::vector<std::size_t> batches_of_rank(std::size_t micro_batches, std::int64_t ranks, std::int64_t rank);

/// The first row of each step, computed on demand. Not thread-safe.
class TokenSteps {
 public:
  /// length(i): tokens of the i-th sample of the run. Step `step` starts at sample `sample`. Throws InputError if a row
  /// of `longest` tokens exceeds the budget.
  TokenSteps(TokenBudget budget, std::int64_t longest, std::function<std::int64_t(std::int64_t)> length,
             std::int64_t step, std::int64_t sample);

  /// First sample of a step; `step` is at least the constructor's.
  std::int64_t begin(std::int64_t step);
  std::vector<TokenBatch> batches(std::int64_t step);    ///< micro-batches of all ranks, as returned by cut_step()
  const TokenBudget& budget() const { return budget_; }  ///< constructor argument

 private:
  std::vector<std::int64_t> lengths(std::int64_t first, std::int64_t count) const;
  std::int64_t most_rows(std::int64_t first) const;

  TokenBudget budget_;
  std::function<std::int64_t(std::int64_t)> length_;
  std::int64_t first_step_ = 0;
  std::vector<std::int64_t> begins_;
};

}  // namespace tessera::layout
