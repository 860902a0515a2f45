#pragma once
/// \file
/// Steps that hold tokens instead of rows: micro-batches of rows of unequal length, none of which has more than N
/// tokens when its rows are filled up to its longest.
///
/// A step is M micro-batches over all ranks together. It takes as many of the next rows of the sample order as M
/// micro-batches can hold; these rows are sorted by length, longest first, and cut into M consecutive runs. (A run
/// holds floor(N / its longest) rows at most, so cutting sorted rows needs the fewest micro-batches.) Of the ways to
/// cut that keep the bound, the one is taken whose most expensive micro-batch is cheapest, where a row of n tokens,
/// padding counted, costs n + quadratic n^2. So what a step holds, and how it is cut, depends on M and N alone: any
/// number of ranks that has M micro-batches altogether takes the same steps.

#include <tessera/layout/batch/shares.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::layout {

/// How many tokens a micro-batch may have.
struct TokenBudget {
  std::int64_t tokens = 0;         ///< N of a micro-batch, padding counted
  std::int64_t micro_batches = 1;  ///< M of a step, over all ranks
  double quadratic = 0;            ///< cost of a row of n tokens: n + quadratic n^2 (attention)
};

/// One micro-batch: places of its rows among those of the step, in the order in which they lie in the batch.
struct TokenBatch {
  std::vector<std::int64_t> rows;  ///< places in the step, as said above
  std::int64_t longest = 0;        ///< tokens that every row is filled up to
  std::int64_t first = 0;          ///< how many rows of the step lie in micro-batches before this one
  double cost = 0;                 ///< the sum over its rows, as TokenBudget::quadratic says
};

/// `lengths` of the next rows, in their order; as many as are given are cut into budget.micro_batches micro-batches,
/// none empty. Empty when they do not fit, or are fewer than the micro-batches. Dearer ones come first.
std::vector<TokenBatch> cut_step(const std::vector<std::int64_t>& lengths, const TokenBudget& budget);

/// Which micro-batches a rank takes, in order: micro-batches of about the same cost stand beside each other, and ranks
/// take turns in getting the dearer one. Indices into what cut_step() gives; M is a multiple of `ranks`.
std::vector<std::size_t> batches_of_rank(std::size_t micro_batches, std::int64_t ranks, std::int64_t rank);

/// Where each step begins; made as far as it is asked for. Not thread-safe.
class TokenSteps {
 public:
  /// length(i): tokens of the i-th sample of the run. Step `step` begins at sample `sample`. Throws InputError when a
  /// row of `longest` tokens is beyond the budget.
  TokenSteps(TokenBudget budget, std::int64_t longest, std::function<std::int64_t(std::int64_t)> length,
             std::int64_t step, std::int64_t sample);

  /// The first sample of a step that is not before the first one.
  std::int64_t begin(std::int64_t step);
  std::vector<TokenBatch> batches(std::int64_t step);    ///< those of all ranks, as cut_step() gives them
  const TokenBudget& budget() const { return budget_; }  ///< as given to the constructor

 private:
  std::vector<std::int64_t> lengths(std::int64_t first, std::int64_t count) const;
  std::int64_t most_rows(std::int64_t first) const;

  TokenBudget budget_;
  std::function<std::int64_t(std::int64_t)> length_;
  std::int64_t first_step_ = 0;
  std::vector<std::int64_t> begins_;
};

}  // namespace tessera::layout
