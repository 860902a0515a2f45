#include <tessera/layout/stages.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace tessera::layout {
namespace {

using Cuts = std::vector<std::int64_t>;  // cuts[s]: the first block of stage s; the last entry is the number of blocks

std::vector<StagePart> parts_of(const Cuts& cuts) {
  return cut_before({cuts.begin() + 1, cuts.end() - 1}, cuts.back());
}

std::vector<double> sums_of(const std::vector<double>& costs) {
  std::vector<double> sums(costs.size() + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  return sums;
}

/// Two chains, each cut into as many pieces as there are ranks: rank r has the r-th piece of each. In a looped
/// placement the chains are the first and the second part of the model; in a V-shaped one the second is reversed.
struct TwoChains {
  std::vector<double> first, second;            // prefix sums of the blocks' costs
  std::vector<double> first_more, second_more;  // by rank: additional costs of its piece (embeddings, end)

  int ranks() const { return static_cast<int>(first_more.size()); }
};

/// The cuts of both chains: entry r is the start of rank r's piece.
struct TwoCuts {
  std::vector<std::size_t> first, second;
};

/// Returns cuts in which no piece exceeds `stage_limit` and no rank's two pieces together exceed `rank_limit`, if they
/// exist. For the same progress in the first chain, more progress in the second is never worse, so only that is stored.
std::optional<TwoCuts> cut_within(const TwoChains& chains, double rank_limit, double stage_limit) {
  const std::size_t n = chains.first.size() - 1, m = chains.second.size() - 1;
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  const auto ranks = static_cast<std::size_t>(chains.ranks());
  std::vector<std::vector<std::size_t>> done(ranks + 1, std::vector<std::size_t>(n + 1, none)), from = done;
  done[0][0] = 0;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i <= n; ++i) {
      if (done[r][i] == none) continue;
      const double before = chains.second[done[r][i]];
      for (std::size_t j = i; j <= n; ++j) {
        const double own = chains.first_more[r] + chains.first[j] - chains.first[i];
        if (own > stage_limit || own > rank_limit) break;
        const double room = std::min(stage_limit, rank_limit - own) - chains.second_more[r];
        if (room < 0) break;
        const auto past = std::partition_point(chains.second.begin() + static_cast<std::ptrdiff_t>(done[r][i]),
                                               chains.second.end(), [&](double sum) { return sum - before <= room; });
        const auto reached = static_cast<std::size_t>(past - chains.second.begin()) - 1;
        if (done[r + 1][j] != none && done[r + 1][j] >= reached) continue;
        done[r + 1][j] = reached;
        from[r + 1][j] = i;
      }
    }
  if (done[ranks][n] != m) return std::nullopt;
  TwoCuts cuts{std::vector<std::size_t>(ranks + 1), std::vector<std::size_t>(ranks + 1)};
  for (std::size_t r = ranks, i = n;; i = from[r--][i]) {
    cuts.first[r] = i;
    cuts.second[r] = done[r][i];
    if (r == 0) return cuts;
  }
}

/// Returns the smallest limit in (low, high] that `possible` accepts, with a relative precision of 10^-12; `possible`
/// must accept `high`.
double least_limit(double low, double high, const std::function<bool(double)>& possible) {
  while (high - low > 1e-12 * high) {
    const double middle = low + (high - low) / 2;
    (possible(middle) ? high : low) = middle;
  }
  return high;
}

/// Moves one or two cuts at a time while `worth` decreases.
template <class Worth>
void descend(Cuts& cuts, const Worth& worth) {
  auto best = worth(cuts);
  const auto try_cuts = [&](const Cuts& changed) {
    if (!std::is_sorted(changed.begin(), changed.end())) return false;
    const auto value = worth(changed);
    if (!(value < best)) return false;
    best = value;
    cuts = changed;
    return true;
  };
  const std::size_t inner = cuts.size() - 1;  // cuts[1 .. inner) may move
  for (bool better = true; better;) {
    better = false;
    for (std::size_t s = 1; s < inner; ++s)
      for (std::int64_t at = cuts[s - 1]; at <= cuts[s + 1]; ++at) {
        Cuts changed = cuts;
        changed[s] = at;
        better = try_cuts(changed) || better;
      }
    for (std::size_t s = 1; s < inner; ++s)
      for (std::size_t t = s + 1; t < inner; ++t)
        for (const auto& [of_s, of_t] : {std::pair(1, 1), std::pair(1, -1), std::pair(-1, 1), std::pair(-1, -1)}) {
          Cuts changed = cuts;
          for (std::size_t k = s; k < t; ++k) changed[k] += of_s;  // the stages in between keep their sizes
          changed[t] += of_t;
          better = try_cuts(changed) || better;
          changed = cuts;
          changed[s] += of_s;
          changed[t] += of_t;
          better = try_cuts(changed) || better;
        }
  }
}

Cuts cuts_of(const std::vector<StagePart>& parts) {
  Cuts cuts;
  for (const StagePart& part : parts) cuts.push_back(part.first_block);
  cuts.push_back(parts.back().past_block());
  return cuts;
}

/// The criteria of a cut. The sums of squares detect progress where the maximum stays the same.
struct Worth {
  double rank = 0, stage = 0;                  // maxima
  double rank_squares = 0, stage_squares = 0;  // sums
};
std::function<Worth(const Cuts&)> worth_of(const ChainCosts& costs, const std::vector<int>& rank_of) {
  return [sums = sums_of(costs.blocks), &costs, &rank_of](const Cuts& cuts) {
    const std::size_t stages = rank_of.size();
    std::vector<double> by_rank(stages, 0);
    Worth worth;
    for (std::size_t s = 0; s < stages; ++s) {
      const double cost = sums[static_cast<std::size_t>(cuts[s + 1])] - sums[static_cast<std::size_t>(cuts[s])] +
                          (s == 0 ? costs.embeddings : 0) + (s + 1 == stages ? costs.end : 0);
      worth.stage = std::max(worth.stage, cost);
      worth.stage_squares += cost * cost;
      by_rank[static_cast<std::size_t>(rank_of[s])] += cost;
    }
    worth.rank = *std::max_element(by_rank.begin(), by_rank.end());
    for (const double load : by_rank) worth.rank_squares += load * load;
    return worth;
  };
}

/// Also evens out stages that cost less than the most expensive one, as far as ranks allow.
void even_out(Cuts& cuts, const std::function<Worth(const Cuts&)>& look) {
  const Worth before = look(cuts);
  descend(cuts, [&](const Cuts& at) {
    const Worth worth = look(at);
    return std::pair(worth.rank > before.rank || worth.stage > before.stage, worth.stage_squares);
  });
}

/// Cuts for two stages per rank, in a V-shaped or looped placement.
std::vector<StagePart> cut_two_per_rank(const ChainCosts& costs, const std::vector<int>& rank_of, bool to_and_fro) {
  const auto ranks = static_cast<int>(rank_of.size() / 2);
  const auto blocks = static_cast<std::int64_t>(costs.blocks.size());
  const auto count = static_cast<std::size_t>(ranks);
  const auto chains_at = [&](std::int64_t middle) {
    const auto at = costs.blocks.begin() + middle;
    std::vector<double> first(costs.blocks.begin(), at), second(at, costs.blocks.end());
    if (to_and_fro) std::reverse(second.begin(), second.end());
    TwoChains chains{sums_of(first), sums_of(second), std::vector<double>(count, 0), std::vector<double>(count, 0)};
    chains.first_more.front() = costs.embeddings;
    (to_and_fro ? chains.second_more.front() : chains.second_more.back()) = costs.end;
    return chains;
  };
  const double all = std::accumulate(costs.blocks.begin(), costs.blocks.end(), costs.embeddings + costs.end);
  double rank_limit = all, stage_limit = all;
  constexpr double less = 1 - 1e-12;
  for (std::int64_t middle = 0; middle <= blocks; ++middle) {
    const TwoChains chains = chains_at(middle);
    const auto possible = [&](double limit) { return cut_within(chains, limit, all).has_value(); };
    if (possible(rank_limit * less)) rank_limit = least_limit(all / ranks * less, rank_limit, possible);
  }
  rank_limit *= 1 + balance_tolerance;
  for (std::int64_t middle = 0; middle <= blocks; ++middle) {
    const TwoChains chains = chains_at(middle);
    const auto possible = [&](double limit) { return cut_within(chains, rank_limit, limit).has_value(); };
    if (possible(stage_limit * less)) stage_limit = least_limit(0, stage_limit, possible);
  }
  // Both limits leave the end of the first chain open; each choice leads to a different cut.
  const auto look = worth_of(costs, rank_of);
  std::optional<Cuts> best;
  for (std::int64_t middle = 0; middle <= blocks; ++middle) {
    const auto found = cut_within(chains_at(middle), rank_limit, stage_limit);
    if (!found) continue;
    Cuts cuts(found->first.begin(), found->first.end() - 1);
    for (std::size_t r = 0; r < count; ++r)
      cuts.push_back(to_and_fro ? blocks - static_cast<std::int64_t>(found->second[count - r])
                                : middle + static_cast<std::int64_t>(found->second[r]));
    cuts.push_back(blocks);
    even_out(cuts, look);
    if (!best || look(cuts).stage_squares < look(*best).stage_squares) best = cuts;
  }
  TESSERA_CHECK(best.has_value(), "no cut of ", blocks, " blocks in ", 2 * ranks, " stages was found");
  return parts_of(*best);
}

std::vector<StagePart> search(const ChainCosts& costs, const std::vector<int>& rank_of) {
  Cuts cuts = cuts_of(cut_by_cost(costs, static_cast<int>(rank_of.size())));
  const auto look = worth_of(costs, rank_of);
  descend(cuts, [&](const Cuts& at) {
    const Worth worth = look(at);
    return std::tuple(worth.rank, worth.rank_squares, worth.stage);
  });
  const double limit = look(cuts).rank * (1 + balance_tolerance);
  descend(cuts, [&](const Cuts& at) {
    const Worth worth = look(at);
    return std::pair(worth.rank > limit, worth.stage);
  });
  even_out(cuts, look);
  return parts_of(cuts);
}

}  // namespace

std::vector<double> costs_of(const std::vector<StagePart>& parts, const ChainCosts& costs) {
  std::vector<double> each;
  for (const StagePart& part : parts) {
    const auto begin = costs.blocks.begin() + static_cast<std::ptrdiff_t>(part.first_block);
    each.push_back(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(part.blocks),
                                   (part.embeddings ? costs.embeddings : 0) + (part.end ? costs.end : 0)));
  }
  return each;
}

std::vector<StagePart> cut_by_cost(const ChainCosts& costs, const std::vector<int>& rank_of) {
  const auto stages = static_cast<int>(rank_of.size());
  std::vector<StagePart> by_stage = cut_by_cost(costs, stages);  // also checks the costs
  const int ranks = *std::max_element(rank_of.begin(), rank_of.end()) + 1;
  for (int rank = 0; rank < ranks; ++rank)
    if (std::count(rank_of.begin(), rank_of.end(), rank) == 0)
      throw InputError(concat("rank ", rank, " of ", ranks, " has no stage; every rank of a pipeline needs one"));
  if (const int least = *std::min_element(rank_of.begin(), rank_of.end()); least < 0)
    throw InputError(concat("a stage is on rank ", least, "; ranks start at 0"));
  if (ranks == stages || ranks == 1) return by_stage;  // each rank has one stage, or one rank has all stages
  bool loop = stages == 2 * ranks, to_and_fro = loop;
  for (int s = 0; s < stages; ++s) {
    const int rank = rank_of[static_cast<std::size_t>(s)];
    loop = loop && rank == s % ranks;
    to_and_fro = to_and_fro && rank == (s < ranks ? s : stages - 1 - s);
  }
  return loop || to_and_fro ? cut_two_per_rank(costs, rank_of, to_and_fro) : search(costs, rank_of);
}

}  // namespace tessera::layout
