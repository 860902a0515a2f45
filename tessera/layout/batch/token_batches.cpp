#include <tessera/layout/batch/token_batches.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::layout {
namespace {

double row_cost(std::int64_t length, double quadratic) {
  const auto n = static_cast<double>(length);
  return n + quadratic * n * n;
}

/// Returns the ends of consecutive runs of rows sorted by length, longest first. Each run is as long as the budget and
/// `most_cost` allow. Stops after more than `most` runs.
std::vector<std::size_t> runs(const std::vector<std::int64_t>& sorted, const TokenBudget& budget, double most_cost,
                              std::size_t most) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < sorted.size() && ends.size() <= most;) {
    const double by_cost = most_cost / row_cost(sorted[i], budget.quadratic);
    std::int64_t rows = budget.tokens / sorted[i];
    if (by_cost < static_cast<double>(rows)) rows = static_cast<std::int64_t>(by_cost);
    if (rows < 1) return {};
    i = std::min(sorted.size(), i + static_cast<std::size_t>(rows));
    ends.push_back(i);
  }
  return ends.size() > most ? std::vector<std::size_t>() : ends;
}

std::vector<std::int64_t> sorted_lengths(std::vector<std::int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  return lengths;
}

bool fits(std::vector<std::int64_t> lengths, const TokenBudget& budget) {
  return !runs(sorted_lengths(std::move(lengths)), budget, 1e300, static_cast<std::size_t>(budget.micro_batches))
              .empty();
}

/// Splits the most expensive run of at least two rows until there are enough runs.
void cut_more(std::vector<std::size_t>& ends, const std::vector<std::int64_t>& sorted, const TokenBudget& budget) {
  while (ends.size() < static_cast<std::size_t>(budget.micro_batches)) {
    double dearest = -1;
    std::size_t at = 0;
    for (std::size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++]) {
      const std::size_t rows = ends[i] - begin;
      const double cost = static_cast<double>(rows) * row_cost(sorted[begin], budget.quadratic);
      if (rows > 1 && cost > dearest) dearest = cost, at = i;
    }
    const std::size_t begin = at == 0 ? 0 : ends[at - 1];
    ends.insert(ends.begin() + static_cast<std::ptrdiff_t>(at), begin + (ends[at] - begin + 1) / 2);
  }
}

}  // namespace

std::vector<TokenBatch> cut_step(const std::vector<std::int64_t>& lengths, const TokenBudget& budget) {
  const auto most = static_cast<std::size_t>(budget.micro_batches);
  if (lengths.size() < most) return {};
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto length = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return length(a) > length(b); });
  std::vector<std::int64_t> sorted;
  for (const std::int64_t i : order) sorted.push_back(length(i));

  std::vector<std::size_t> ends = runs(sorted, budget, 1e300, most);
  if (ends.empty()) return {};
  double low = 0, high = 0;  // the smallest cost bound with few enough runs is in (low, high]
  for (const std::int64_t n : sorted) high += row_cost(n, budget.quadratic);
  high = std::max(high, static_cast<double>(sorted.size()) * row_cost(sorted.front(), budget.quadratic));
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    if (auto cut = runs(sorted, budget, middle, most); !cut.empty()) {
      ends = std::move(cut);
      high = middle;
    } else {
      low = middle;
    }
  }
  cut_more(ends, sorted, budget);

  std::vector<TokenBatch> batches;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    batches.push_back(
        {.rows = {order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end)},
         .longest = sorted[begin],
         .first = static_cast<std::int64_t>(begin),
         .cost = static_cast<double>(end - begin) * row_cost(sorted[begin], budget.quadratic)});
    begin = end;
  }
  std::stable_sort(batches.begin(), batches.end(), [](const auto& a, const auto& b) { return a.cost > b.cost; });
  return batches;
}

std::vector<std::size_t> batches_of_rank(std::size_t micro_batches, std::int64_t ranks, std::int64_t rank) {
  std::vector<std::size_t> own;
  const auto width = static_cast<std::size_t>(ranks);
  for (std::size_t begin = 0; begin + width <= micro_batches; begin += width) {
    const bool turned = begin / width % 2 == 1;
    own.push_back(begin + static_cast<std::size_t>(turned ? ranks - 1 - rank : rank));
  }
  return own;
}

TokenSteps::TokenSteps(TokenBudget budget, std::int64_t longest, std::function<std::int64_t(std::int64_t)> length,
                       std::int64_t step, std::int64_t sample)
    : budget_(budget), length_(std::move(length)), first_step_(step), begins_{sample} {
  if (longest > budget.tokens)
    throw InputError(concat("--tokens_per_batch ", budget.tokens, ": rows have up to ", longest,
                            " tokens, so not even one fits into a micro-batch; use at least ", longest,
                            ", or shorten rows with --max_seq_length or --block_size"));
}

std::vector<std::int64_t> TokenSteps::lengths(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> result;
  for (std::int64_t i = first; i < first + count; ++i) result.push_back(std::max<std::int64_t>(1, length_(i)));
  return result;
}

/// More rows never need fewer micro-batches, so the maximum is found by doubling and bisection.
std::int64_t TokenSteps::most_rows(std::int64_t first) const {
  std::int64_t fit = budget_.micro_batches, beyond = 2 * fit;
  while (fits(lengths(first, beyond), budget_)) fit = std::exchange(beyond, 2 * beyond);
  const std::vector<std::int64_t> all = lengths(first, beyond);
  while (beyond - fit > 1) {
    const std::int64_t middle = (fit + beyond) / 2;
    (fits({all.begin(), all.begin() + middle}, budget_) ? fit : beyond) = middle;
  }
  return fit;
}

std::int64_t TokenSteps::begin(std::int64_t step) {
  TESSERA_CHECK(step >= first_step_, "step ", step, " before the first, ", first_step_);
  const auto at = static_cast<std::size_t>(step - first_step_);
  while (begins_.size() <= at) begins_.push_back(begins_.back() + most_rows(begins_.back()));
  return begins_[at];
}

std::vector<TokenBatch> TokenSteps::batches(std::int64_t step) {
  const std::int64_t first = begin(step);
  return cut_step(lengths(first, begin(step + 1) - first), budget_);
}

}  // namespace tessera::layout
