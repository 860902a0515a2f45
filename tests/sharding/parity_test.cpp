// Every strategy on 1 to 4 ranks against one process that runs the plain loop: fixed order bit by bit, fast order
// within the numerics contract (docs/strategies.md). TESSERA_FULL=1: the full product.
#include <tests/sharding/job.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr int steps = 20;

/// Computed once, in the parent, before ranks are forked.
const Record& reference(const Task& task, Rule rule, std::int64_t V) {
  static std::map<std::tuple<std::string, Rule, std::int64_t>, Record> known;
  const auto [place, fresh] = known.try_emplace({task.name, rule, V});
  if (fresh) place->second = train_alone(task, rule, V, steps);
  return place->second;
}

struct Cell {
  const Task* task;
  const Form* form;
  int accumulation;
  Rule rule;
  int wrap;     ///< 0: the task's classes, 1: none, 2: by size
  bool forced;  ///< also do the work that one rank could skip

  std::string text(int ranks) const {
    return concat(task->name, ", ", form->name, ", ", ranks, " ranks, accumulation ", accumulation,
                  rule == Rule::sgd ? ", sgd" : ", adamw", ", wrap ", wrap);
  }
  ShardingOptions options(int ranks) const {
    ShardingOptions options{
        .strategy = form->strategy, .shard_group_size = form->group(ranks), .reshard_alone = forced};
    if (wrap == 0) options.wrap = by_class(task->units);
    if (wrap == 2) options.wrap = by_size(700);
    options.bucket_mb = 0.003;  // several buckets
    options.first_bucket_mb = 0.001;
    return fitted(std::move(options));
  }
};

/// Covers every pair (task, form), (task, ranks) and (form, ranks); the other options take turns.
std::vector<Cell> cells_of(int ranks) {
  std::vector<Cell> cells;
  for (std::size_t t = 0; t < tasks().size(); ++t)
    for (std::size_t f = 0; f < forms().size(); ++f) {
      const bool chosen = (t + f + static_cast<std::size_t>(ranks)) % 4 == 0;
      if (!chosen && !full_product()) continue;
      const std::size_t turn = t * forms().size() + f;
      for (const int accumulation : {1, 3})
        for (const Rule rule : {Rule::sgd, Rule::adamw}) {
          const bool this_turn = (turn % 2 == 0) == (accumulation == 1) && (turn / 2 % 2 == 0) == (rule == Rule::sgd);
          if (!this_turn && !full_product()) continue;
          cells.push_back({&tasks()[t], &forms()[f], accumulation, rule,
                           static_cast<int>(turn % 5 == 4   ? 2
                                            : turn % 5 == 2 ? 1
                                                            : 0),
                           turn % 3 != 0});
        }
    }
  return cells;
}

class Parity : public ::testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Ranks, Parity, ::testing::Values(1, 2, 3, 4));

TEST_P(Parity, fixed_order_has_the_bits_of_one_process) {
  const int ranks = GetParam();
  const std::vector<Cell> cells = cells_of(ranks);
  for (const Cell& cell : cells) (void)reference(*cell.task, cell.rule, cell.accumulation * ranks);
  run_ranks(
      ranks,
      [&](comm::World& world) {
        for (const Cell& cell : cells) {
          ShardingOptions options = cell.options(ranks);
          options.logical_shards = cell.accumulation * ranks;
          const Record got = train_job(world, *cell.task, std::move(options), {.rule = cell.rule, .steps = steps});
          expect_same_bits(world, got, reference(*cell.task, cell.rule, cell.accumulation * ranks), cell.text(ranks));
          if (::testing::Test::HasFatalFailure()) return;
        }
      },
      full_product() ? 600 : 120);
}

// A step of 12 micro-batches is the same for every number of ranks and every strategy.
TEST_P(Parity, fixed_order_does_not_depend_on_the_number_of_ranks) {
  const int ranks = GetParam();
  constexpr int few = 5;
  std::vector<Cell> cells;
  for (std::size_t t = 0; t < tasks().size(); ++t)
    cells.push_back({&tasks()[t], &forms()[(t + 2 * static_cast<std::size_t>(ranks)) % forms().size()], 12 / ranks,
                     Rule::adamw, 0, true});
  std::map<std::string, Record> expected;
  for (const Cell& cell : cells) expected[cell.task->name] = train_alone(*cell.task, cell.rule, 12, few);
  run_ranks(
      ranks,
      [&](comm::World& world) {
        for (const Cell& cell : cells) {
          ShardingOptions options = cell.options(ranks);
          options.logical_shards = 12;
          expect_same_bits(world, train_job(world, *cell.task, std::move(options), {.rule = cell.rule, .steps = few}),
                           expected.at(cell.task->name), cell.text(ranks));
        }
      },
      90);
}

TEST_P(Parity, fast_order_is_within_the_contract) {
  const int ranks = GetParam();
  const std::vector<Cell> cells = cells_of(ranks);
  for (const Cell& cell : cells) (void)reference(*cell.task, cell.rule, cell.accumulation * ranks);
  run_ranks(
      ranks,
      [&](comm::World& world) {
        for (const Cell& cell : cells) {
          const Record got = train_job(world, *cell.task, cell.options(ranks),
                                       {.rule = cell.rule, .steps = steps, .accumulation = cell.accumulation});
          expect_close(world, got, reference(*cell.task, cell.rule, cell.accumulation * ranks), cell.rule, at::kFloat,
                       cell.text(ranks));
        }
      },
      full_product() ? 600 : 120);
}

// Two identical runs give the same bits.
TEST_P(Parity, fast_order_repeats) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](comm::World& world) {
    for (const Form& form : forms()) {
      const Cell cell{&task("gpt"), &form, 2, Rule::adamw, 0, true};
      const Training training{.rule = Rule::adamw, .steps = 3, .accumulation = 2};
      const Record first = train_job(world, *cell.task, cell.options(ranks), training),
                   again = train_job(world, *cell.task, cell.options(ranks), training);
      for (const auto& [name, value] : first.weights)
        EXPECT_TRUE(at::equal(value, again.weights.at(name))) << form.name << ": " << name;
      EXPECT_EQ(first.norms, again.norms) << form.name;
    }
  });
}

TEST_P(Parity, fp64) {
  const int ranks = GetParam();
  constexpr int few = 8;
  std::map<std::string, Record> one, fixed;
  for (const Task& t : tasks())
    if (t.has_fp64) {
      one[t.name] = train_alone(t, Rule::sgd, 1, few, at::kDouble);
      fixed[t.name] = train_alone(t, Rule::adamw, ranks, few, at::kDouble);
    }
  run_ranks(
      ranks,
      [&](comm::World& world) {
        std::size_t f = 0;
        for (const Task& t : tasks()) {
          if (!t.has_fp64) continue;
          for (int i = 0; i < 2; ++i) {
            const Cell cell{&t, &forms()[f++ % forms().size()], 1, Rule::sgd, 0, i == 1};
            const Record fast =
                train_job(world, t, cell.options(ranks), {.rule = Rule::sgd, .steps = few, .dtype = at::kDouble});
            expect_close(world, fast, one.at(t.name), Rule::sgd, at::kDouble, cell.text(ranks));
            ShardingOptions options = cell.options(ranks);
            options.logical_shards = ranks;
            expect_same_bits(world,
                             train_job(world, t, options, {.rule = Rule::adamw, .steps = few, .dtype = at::kDouble}),
                             fixed.at(t.name), cell.text(ranks));
          }
        }
      },
      60);
}

}  // namespace
