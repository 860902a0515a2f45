#include <tessera/layout/schedule/cut.h>

#include <tessera/base/error.h>

#include <limits>
#include <utility>

namespace tessera::layout::schedule {
namespace {

constexpr std::int64_t most_actions = 4'000'000;

using Counts = std::vector<std::int64_t>;  // pieces of every stage

void add(StageCosts& sum, const StageCosts& more) {
  sum.forward += more.forward;
  sum.input_gradient += more.input_gradient;
  sum.weight_gradient += more.weight_gradient;
}

double all_passes(const StageCosts& costs) { return costs.forward + costs.input_gradient + costs.weight_gradient; }

Counts counts_of(const std::vector<StagePart>& parts) {
  Counts counts;
  for (const StagePart& part : parts) counts.push_back(part.blocks);
  return counts;
}

class Search {
 public:
  Search(const ChainTimes& chain, const Schedule& schedule)
      : chain_(chain),
        // Computations only: time_schedule() adds the messages to each candidate, and their cost does not depend on the
        // cut.
        schedule_(computations_of(schedule)),
        left_(most_actions / std::max<std::int64_t>(1, count_actions(schedule_))) {}

  /// Returns the best cut reached by repeatedly moving one or two borders, starting from `counts`.
  std::pair<double, Counts> from(Counts counts) {
    double best = seconds(counts);
    const auto borders = static_cast<int>(counts.size()) - 1;
    for (bool better = true; better && left_ > 0;) {
      better = false;
      const Counts here = counts;
      const auto look = [&](const Counts& there) {
        if (left_ <= 0) return;
        const double found = seconds(there);
        if (found >= best * (1 - 1e-9)) return;
        best = found;
        counts = there;
        better = true;
      };
      for (int i = 0; i < borders; ++i)
        for (const int by : {-1, 1, -2, 2}) {
          Counts one = here;
          if (!move(one, i, by)) continue;
          look(one);
          for (int j = i + 1; j < borders; ++j)
            for (const int also : {-1, 1}) {
              Counts two = one;
              if (move(two, j, also)) look(two);
            }
        }
    }
    return {best, counts};
  }

  std::vector<StagePart> parts_of(const Counts& counts) const {
    if (chain_.halves) return parts_of_halves(counts);
    std::vector<std::int64_t> firsts;
    std::int64_t first = 0;
    for (std::size_t s = 0; s + 1 < counts.size(); ++s) firsts.push_back(first += counts[s]);
    return cut_before(firsts, static_cast<std::int64_t>(chain_.pieces.size()));
  }

 private:
  /// Moves `by` pieces from stage border + 1 to stage `border`.
  static bool move(Counts& counts, int border, int by) {
    std::int64_t &before = counts[static_cast<std::size_t>(border)],
                 &behind = counts[static_cast<std::size_t>(border) + 1];
    before += by;
    behind -= by;
    return before >= 0 && behind >= 0;
  }

  double seconds(const Counts& counts) {
    --left_;
    Costs costs{.stages = stage_costs(parts_of(counts), chain_)};
    return time_schedule(schedule_, costs).total;
  }

  const ChainTimes& chain_;
  Schedule schedule_;
  std::int64_t left_;  // remaining simulations
};

}  // namespace

ChainTimes chain_of_flops(const std::vector<BlockFlops>& blocks, const EndFlops& end, bool halves) {
  const StageCosts head{3 * end.head, 0, 0}, map{end.depth_map, end.depth_map, end.depth_map};
  const auto attention = [](const BlockFlops& flops) {
    const double scores = flops.scores / 2;
    return StageCosts{flops.attention + scores, flops.attention + 2.5 * scores, flops.attention};
  };
  const auto mlp = [](const BlockFlops& flops) { return StageCosts{flops.mlp, flops.mlp, flops.mlp}; };
  ChainTimes chain{.pieces = {}, .halves = halves, .end = head};
  for (const BlockFlops& flops : blocks) {
    chain.pieces.push_back(attention(flops));
    if (halves)
      chain.pieces.push_back(mlp(flops));
    else
      add(chain.pieces.back(), mlp(flops));
  }
  for (const BlockFlops& flops : end.depths)
    for (const StageCosts& more : {map, attention(flops), mlp(flops), head}) add(chain.end, more);
  return chain;
}

std::vector<StageCosts> stage_costs(const std::vector<StagePart>& parts, const ChainTimes& chain) {
  const std::int64_t each = chain.halves ? 2 : 1;
  TESSERA_CHECK(chain.halves || !cuts_blocks(parts), "blocks are cut, but only the times of whole ones are known");
  std::vector<StageCosts> costs;
  for (const StagePart& part : parts) {
    StageCosts& sum = costs.emplace_back(StageCosts{0, 0, 0});
    if (part.embeddings) add(sum, chain.embeddings);
    const std::int64_t past = each * part.past_block() - (part.ends_inside ? 1 : 0);
    TESSERA_CHECK(past <= static_cast<std::int64_t>(chain.pieces.size()), text_of(part), " of ", chain.pieces.size(),
                  " pieces");
    for (std::int64_t i = each * part.first_block + (part.begins_inside ? 1 : 0); i < past; ++i)
      add(sum, chain.pieces[static_cast<std::size_t>(i)]);
    if (part.end) add(sum, chain.end);
  }
  return costs;
}

std::vector<StagePart> cut_for_schedule(const ChainTimes& chain, const Schedule& schedule) {
  ChainCosts whole{.blocks = {}, .embeddings = all_passes(chain.embeddings), .end = all_passes(chain.end)};
  for (const StageCosts& piece : chain.pieces) whole.blocks.push_back(all_passes(piece));
  Search search(chain, schedule);
  std::pair<double, Counts> best{std::numeric_limits<double>::infinity(), {}};
  for (const Counts& start :
       {counts_of(cut_by_cost(whole, schedule.rank_of)), counts_of(cut_by_cost(whole, schedule.stages())),
        counts_of(cut_evenly(static_cast<std::int64_t>(whole.blocks.size()), schedule.stages()))})
    if (auto found = search.from(start); found.first < best.first) best = std::move(found);
  return search.parts_of(best.second);
}

}  // namespace tessera::layout::schedule
