// Pipelines of real processes against one process.
#include <tests/error_of.h>
#include <tests/pipeline/chain.h>

#include <tessera/layout/schedule/lower.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>

#include <c10/util/intrusive_ptr.h>

#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;
using layout::schedule::Action;
using layout::schedule::InFlight;
using layout::schedule::Kind;
using layout::schedule::make_schedule;
using layout::schedule::Schedule;
using parallel::PipelineExecutor;
using parallel::PipelineOptions;

PipelineOptions options_for(comm::World& world, Chain& chain, const Schedule& schedule) {
  PipelineOptions options;
  options.group = world.group();
  options.stages = chain.pipeline_stages(schedule, world.rank());
  return options;
}

class Pipeline : public ::testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Ranks, Pipeline, ::testing::Values(1, 2, 4));

TEST_P(Pipeline, EverySchedule_equals_one_process) {
  const int ranks = GetParam();
  const std::vector<int> numbers = {1, 2, 4, 7};
  std::map<int, ChainResult> references;
  for (const int m : numbers) references[m] = chain_reference(m, at::kDouble);
  run_ranks(ranks, [&](comm::World& world) {
    int count = 0;
    for (const int m : numbers)
      for (const int v : {1, 2}) {
        std::map<std::vector<int>, ChainResult> first;  // by placement
        for (const Schedule& schedule : schedules_of(ranks, v, m)) {
          const std::string what = concat(schedule.name, ", v = ", v, ", m = ", m);
          Chain chain(schedule, world.rank(), at::kDouble);
          PipelineExecutor executor(options_for(world, chain, schedule));
          const ChainResult mine = chain.result(executor.run(schedule));
          EXPECT_EQ(mine.losses.empty(), schedule.rank_of.back() != world.rank()) << what;
          EXPECT_LE(distance(mine, references.at(m)), 1e-12) << what;
          const auto [at, is_first] = first.try_emplace(schedule.rank_of, mine);
          EXPECT_TRUE(is_first || same_bits(mine, at->second)) << what;
          ++count;
        }
      }
    EXPECT_GE(count, 40);
  });
}

TEST_P(Pipeline, SeveralBatchesOfOneExecutor) {
  const int ranks = GetParam();
  const ChainResult reference = chain_reference(4, at::kFloat);
  run_ranks(ranks, [&](comm::World& world) {
    const Schedule schedule = make_schedule("zb-h1", {.ranks = ranks, .stages_per_rank = 1, .micro_batches = 4});
    Chain chain(schedule, world.rank(), at::kFloat);
    PipelineOptions options = options_for(world, chain, schedule);
    options.sizes = [](int) { return std::vector<std::int64_t>{chain_rows, 2, chain_width}; };
    PipelineExecutor executor(std::move(options));
    for (int batch = 0; batch < 3; ++batch) {
      const std::vector<at::Tensor> seen = executor.run(forward_only(schedule));
      for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_FALSE(seen[i].requires_grad());
        EXPECT_TRUE(at::equal(seen[i], reference.losses[i]));
      }
      EXPECT_FALSE(chain.layers.begin()->second.weight.grad().defined());
      EXPECT_LE(distance(chain.result(executor.run(schedule)), reference), 1e-6) << "batch " << batch;
      chain.clear_gradients();
      std::size_t computations = 0;
      double end = 0;
      for (const auto& timed : executor.measured()) {
        EXPECT_LE(end, timed.start);
        EXPECT_LE(timed.start, timed.end);
        end = timed.end;
        computations += is_compute(timed.action.kind);
      }
      EXPECT_EQ(computations, 12u * chain.stages / static_cast<std::size_t>(ranks));
    }
  });
}

// A rank can run its computations alone, any number of times, without affecting the next batch.
TEST_P(Pipeline, ARehearsalNeedsNobody) {
  const int ranks = GetParam();
  const ChainResult reference = chain_reference(4, at::kFloat);
  run_ranks(ranks, [&](comm::World& world) {
    for (const char* name : {"1f1b", "zb_h1", "interleaved", "zbv"}) {
      const Schedule schedule = make_schedule(name, {.ranks = ranks, .stages_per_rank = 0, .micro_batches = 4});
      Chain chain(schedule, world.rank(), at::kFloat);
      PipelineOptions options = options_for(world, chain, schedule);
      options.sizes = [](int) { return std::vector<std::int64_t>{chain_rows, 2, chain_width}; };
      int computations = 0;
      options.enter = [&](const Action&) { ++computations; };
      PipelineExecutor executor(std::move(options));
      for (int i = 0; i <= world.rank(); ++i) executor.rehearse(schedule);
      EXPECT_EQ(computations % (world.rank() + 1), 0) << name;
      EXPECT_TRUE(chain.layers.begin()->second.weight.grad().defined()) << name << ": backward was also rehearsed";
      chain.clear_gradients();
      EXPECT_LE(distance(chain.result(executor.run(schedule)), reference), 1e-6) << name;
    }
  });
}

// An error in a rehearsal reaches the caller as the stage threw it.
TEST(PipelineRehearsal, ErrorsComeOutAsTheyAre) {
  const Schedule schedule = make_schedule("1f1b", {.ranks = 1, .stages_per_rank = 1, .micro_batches = 2});
  PipelineOptions options;
  options.sizes = [](int) { return std::vector<std::int64_t>{1}; };
  options.stages[0] = {[](int, const at::Tensor&) -> at::Tensor { throw std::bad_alloc(); }};
  PipelineExecutor executor(std::move(options));
  EXPECT_THROW(executor.rehearse(schedule), std::bad_alloc);
  EXPECT_THROW(executor.run(schedule), Error);
}

// I may be the whole backward: all gradients of a micro-batch then exist after it, with the same bits.
TEST_P(Pipeline, BackwardMayStayUndivided) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](comm::World& world) {
    for (const char* name : {"zb_h1", "zbv"}) {
      const Schedule schedule = make_schedule(name, {.ranks = ranks, .stages_per_rank = 0, .micro_batches = 4});
      std::vector<ChainResult> results;
      for (const bool undivided : {false, true}) {
        Chain chain(schedule, world.rank(), at::kDouble);
        PipelineOptions options = options_for(world, chain, schedule);
        options.undivided = undivided;
        const auto gradients = [&] {
          std::vector<at::Tensor> all;
          for (const auto& [stage, layer] : chain.layers)
            all.push_back(layer.weight.grad().defined() ? layer.weight.grad().clone()
                                                        : at::zeros_like(layer.weight.detach()));
          return all;
        };
        std::vector<at::Tensor> before;
        int changes = 0;  // how often a weight's gradient changed in W
        options.enter = [&](const Action& action) {
          if (action.kind == Kind::weight_gradient) before = gradients();
        };
        options.leave = [&](const Action& action) {
          if (action.kind != Kind::weight_gradient) return;
          const std::vector<at::Tensor> after = gradients();
          for (std::size_t i = 0; i < after.size(); ++i) changes += !at::equal(before[i], after[i]);
        };
        PipelineExecutor executor(std::move(options));
        results.push_back(chain.result(executor.run(schedule)));
        EXPECT_EQ(changes > 0, !undivided) << name;
      }
      EXPECT_TRUE(same_bits(results[0], results[1])) << name;
    }
  });
}

TEST_P(Pipeline, MicroBatchesMayDifferInSize) {
  const int ranks = GetParam();
  const std::vector<std::int64_t> rows = {3, 1, 5, 2, 4};
  const ChainResult reference = chain_reference(5, at::kDouble, 0, rows);
  run_ranks(ranks, [&](comm::World& world) {
    for (const bool known : {false, true})
      for (const char* name : {"1f1b", "zbv"}) {
        const Schedule schedule = make_schedule(name, {.ranks = ranks, .stages_per_rank = 0, .micro_batches = 5});
        Chain chain(schedule, world.rank(), at::kDouble);
        chain.rows = rows;
        PipelineOptions options = options_for(world, chain, schedule);
        options.variable_sizes = !known;
        if (known)
          options.sizes = [&](int m) {
            return std::vector<std::int64_t>{rows[static_cast<std::size_t>(m)], 2, chain_width};
          };
        PipelineExecutor executor(std::move(options));
        for (int batch = 0; batch < 2; ++batch) {
          EXPECT_LE(distance(chain.result(executor.run(schedule)), reference), 1e-12) << name << ", " << known;
          chain.clear_gradients();
        }
      }
  });
}

TEST_P(Pipeline, FrozenStages) {
  const int ranks = GetParam();
  for (const int trained : {2, 5, 8}) {
    const ChainResult reference = chain_reference(4, at::kDouble, trained);
    run_ranks(ranks, [&](comm::World& world) {
      for (const char* name : {"1f1b", "zbv", "interleaved"}) {
        const Schedule schedule = make_schedule(name, {.ranks = ranks, .stages_per_rank = 0, .micro_batches = 4});
        Chain chain(schedule, world.rank(), at::kDouble, trained);
        PipelineExecutor executor(options_for(world, chain, schedule));
        EXPECT_LE(distance(chain.result(executor.run(schedule)), reference), 1e-12) << name << ", " << trained;
      }
    });
  }
}

// Evaluation and training may compute in different types; schedules may contain their messages.
TEST_P(Pipeline, TypesMayChangeBetweenBatches) {
  const int ranks = GetParam();
  const ChainResult reference = chain_reference(4, at::kFloat);
  run_ranks(ranks, [&](comm::World& world) {
    const Schedule schedule =
        with_messages(make_schedule("interleaved", {.ranks = ranks, .stages_per_rank = 2, .micro_batches = 4}));
    Chain chain(schedule, world.rank(), at::kFloat);
    PipelineOptions options = options_for(world, chain, schedule);
    options.sizes = [](int) { return std::vector<std::int64_t>{chain_rows, 2, chain_width}; };
    bool narrow = false;
    std::set<at::ScalarType> types;
    for (auto& [stage, functions] : options.stages)
      functions.forward = [&, plain = functions.forward](int m, const at::Tensor& input) {
        if (input.defined()) types.insert(input.scalar_type());
        const at::Tensor y = plain(m, input.defined() ? input.to(at::kFloat) : input);
        return narrow && y.dim() > 0 ? y.to(at::kBFloat16) : y;
      };
    PipelineExecutor executor(std::move(options));
    for (const bool evaluate : {false, true}) {
      narrow = evaluate;
      types.clear();
      const ChainResult mine = chain.result(executor.run(evaluate ? forward_only(schedule) : schedule));
      EXPECT_LE(distance(mine, reference), evaluate ? 1e-2 : 1e-6);
      EXPECT_EQ(types, std::set{evaluate ? at::kBFloat16 : at::kFloat});
    }
  });
}

// Stages recomputed in backward give the same bits, also with divided backward passes.
TEST(PipelineShapes, Recomputation) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    run_ranks(2, [&](comm::World& world) {
      for (const char* name : {"1f1b", "zb-h1", "zbv"}) {
        const Schedule schedule = make_schedule(name, {.ranks = 2, .stages_per_rank = 0, .micro_batches = 4});
        std::vector<ChainResult> results;
        const std::int64_t before = parallel::checkpoint_counts().recomputed;
        for (const bool again : {false, true}) {
          Chain chain(schedule, world.rank(), type);
          PipelineOptions options = options_for(world, chain, schedule);
          for (auto& [stage, functions] : options.stages)
            if (again && stage > 0)
              functions.forward = [plain = functions.forward](int m, const at::Tensor& input) {
                return checkpointed([plain, m](const at::Tensor& x) { return plain(m, x); }, input);
              };
          PipelineExecutor executor(std::move(options));
          results.push_back(chain.result(executor.run(schedule)));
        }
        EXPECT_TRUE(same_bits(results[0], results[1])) << name;
        EXPECT_TRUE(world.rank() == 0 || parallel::checkpoint_counts().recomputed > before) << name;
      }
    });
}

// More stages than layers: some stages pass their input through.
TEST(PipelineShapes, EmptyStages) {
  const ChainResult reference = chain_reference(3, at::kDouble);
  run_ranks(2, [&](comm::World& world) {
    const Schedule schedule = make_schedule("interleaved", {.ranks = 2, .stages_per_rank = 6, .micro_batches = 3});
    Chain chain(schedule, world.rank(), at::kDouble);
    PipelineExecutor executor(options_for(world, chain, schedule));
    EXPECT_LE(distance(chain.result(executor.run(schedule)), reference), 1e-12);
  });
}

// Tensors for backward live exactly as long as the schedule specifies: the input of a linear map until W, the graph
// until I. Both are observed from outside.
TEST(PipelineShapes, MicroBatchesInFlight) {
  run_ranks(4, [](comm::World& world) {
    for (const int v : {1, 2})
      for (const Schedule& schedule : schedules_of(4, v, 7)) {
        using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
        std::vector<Weak> inputs, graphs;
        int most_inputs = 0, most_graphs = 0;
        const auto look = [&] {
          const auto living = [](std::vector<Weak>& all) {
            std::erase_if(all, [](const Weak& weak) { return weak.expired(); });
            return static_cast<int>(all.size());
          };
          most_inputs = std::max(most_inputs, living(inputs));
          most_graphs = std::max(most_graphs, living(graphs));
        };
        const at::Tensor weight = at::eye(4, at::kFloat).requires_grad_();
        PipelineOptions options;
        options.group = world.group();
        for (const int stage : stages_of(schedule, world.rank()))
          options.stages[stage] = {[&, stage](int, const at::Tensor& input) {
            const at::Tensor held = (stage == 0 ? at::ones({2, 4}) : input) * 0.5;
            const at::Tensor y = nn::linear(held, weight, {}).sigmoid();
            inputs.emplace_back(held.storage().getWeakStorageImpl());
            graphs.emplace_back(y.storage().getWeakStorageImpl());
            look();
            return stage + 1 == schedule.stages() ? y.sum() : y * 0.5;
          }};
        options.leave = [&](const Action&) { look(); };
        PipelineExecutor executor(std::move(options));
        executor.run(schedule);
        const InFlight in_flight = count_in_flight(schedule);
        const auto rank = static_cast<std::size_t>(world.rank());
        EXPECT_EQ(most_inputs, in_flight.of_rank[rank]) << schedule.name;
        EXPECT_EQ(most_graphs, in_flight.of_rank_before_input[rank]) << schedule.name;
        look();
        EXPECT_TRUE(inputs.empty() && graphs.empty()) << schedule.name;
      }
  });
}

std::vector<RankOutcome> run_failing(const std::function<void(PipelineOptions&, Chain&)>& change) {
  RankOptions run;
  run.end_after_failure = false;
  run.timeout_s = 300;
  return run_ranks_outcomes(
      4,
      [&](comm::World& world) {
        const Schedule schedule = make_schedule("1f1b", {.ranks = 4, .stages_per_rank = 1, .micro_batches = 8});
        Chain chain(schedule, world.rank(), at::kDouble);
        PipelineOptions options = options_for(world, chain, schedule);
        change(options, chain);
        PipelineExecutor executor(std::move(options));
        const Stopwatch watch;
        try {
          executor.run(schedule);
        } catch (const std::exception& error) {
          post(concat(watch.seconds() / watch.limit(3)));
          EXPECT_NE(error_of<Error>([&] { executor.run(schedule); }).find("an earlier batch failed"),
                    std::string::npos);
          throw;
        }
      },
      run);
}

void expect_told(const std::vector<RankOutcome>& outcomes, std::size_t rank, const std::string& words) {
  EXPECT_NE(outcomes[rank].error.find(words), std::string::npos) << outcomes[rank].error;
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.killed_by_harness);
    EXPECT_FALSE(outcome.error.empty());
    ASSERT_EQ(outcome.posted.size(), 1u) << outcome.error;
    EXPECT_LE(std::stod(outcome.posted[0]), 1) << "times the limit";
  }
}

TEST(PipelineFaults, AStageThrows) {
  expect_told(run_failing([](PipelineOptions& options, Chain&) {
                if (options.group.rank() != 2) return;
                options.stages[2].forward = [plain = options.stages[2].forward](int m, const at::Tensor& input) {
                  if (m == 3) throw std::runtime_error("no more");
                  return plain(m, input);
                };
              }),
              2, "pipeline: stage 2, micro-batch 3 (2F3): no more");
}

// An exception in any stage under any schedule, in F or in backward: that stage is named, and the other ranks stop.
TEST(PipelineFaults, AnyStageThrowsUnderAnySchedule) {
  int turn = 0;
  for (const auto& row : layout::schedule::schedules()) {
    const Schedule schedule = make_schedule(row.name, {.ranks = 2, .stages_per_rank = 0, .micro_batches = 4});
    const int victim = turn++ % schedule.stages();
    const bool backward = turn % 2 == 0;
    RankOptions run;
    run.end_after_failure = false;
    run.timeout_s = 300;
    const auto outcomes = run_ranks_outcomes(
        2,
        [&](comm::World& world) {
          Chain chain(schedule, world.rank(), at::kDouble);
          PipelineOptions options = options_for(world, chain, schedule);
          for (auto& [stage, functions] : options.stages)
            if (stage == victim)
              functions.forward = [&, plain = functions.forward](int m, const at::Tensor& input) {
                if (m == 2 && !backward) throw std::runtime_error("no more");
                const at::Tensor y = plain(m, input);
                if (m == 2) y.register_hook([](const at::Tensor&) { throw std::runtime_error("no more"); });
                return y;
              };
          PipelineExecutor executor(std::move(options));
          world.group().barrier().wait();  // a rank that throws at once would exit before the others are connected
          const Stopwatch watch;
          try {
            executor.run(schedule);
          } catch (const std::exception&) {
            post(concat(watch.seconds() / watch.limit(2)));
            throw;
          }
        },
        run);
    const std::string told =
        outcomes[static_cast<std::size_t>(schedule.rank_of[static_cast<std::size_t>(victim)])].error;
    EXPECT_NE(told.find(concat("pipeline: stage ", victim, ", micro-batch 2 (", victim)), std::string::npos) << told;
    EXPECT_NE(told.find("no more"), std::string::npos) << told;
    for (const RankOutcome& outcome : outcomes) {
      ASSERT_EQ(outcome.posted.size(), 1u) << row.name << ": " << outcome.error;
      EXPECT_LE(std::stod(outcome.posted[0]), 1) << row.name << ", times the limit";
    }
  }
}

// A non-finite value is attributed to where it began: a stage's F, or its backward.
TEST(PipelineFaults, NotFinite) {
  run_ranks(2, [](comm::World& world) {
    for (const auto& row : layout::schedule::schedules()) {
      const Schedule schedule = make_schedule(row.name, {.ranks = 2, .stages_per_rank = 0, .micro_batches = 4});
      for (int victim = 0; victim < schedule.stages(); ++victim)
        for (const bool backward : {false, true}) {
          if (backward && victim == 0) continue;  // the first stage sends no gradient back
          Chain chain(schedule, world.rank(), at::kDouble);
          PipelineOptions options = options_for(world, chain, schedule);
          for (auto& [stage, functions] : options.stages)
            if (stage == victim)
              functions.forward = [&, plain = functions.forward](int m, const at::Tensor& input) {
                const at::Tensor y = plain(m, input);
                if (m != 1) return y;
                if (!backward) return y / 0.0;
                const at::Tensor spoilt = y * 1.0;
                spoilt.register_hook([](const at::Tensor& gradient) { return gradient / 0.0; });
                return spoilt;
              };
          PipelineExecutor executor(std::move(options));
          executor.run(schedule);
          std::set<std::string> named;
          for (const Action& action : executor.not_finite()) named.insert(text_of(action));
          for (const int stage : stages_of(schedule, world.rank())) {
            EXPECT_EQ(named.contains(concat(stage, "F1")), !backward && stage >= victim) << row.name << victim;
            const bool back = named.contains(concat(stage, "B1")) || named.contains(concat(stage, "I1"));
            EXPECT_EQ(back, stage > 0 && (!backward || stage <= victim)) << row.name << victim;
            EXPECT_FALSE(named.contains(concat(stage, "F0"))) << row.name;
          }
        }
    }
  });
}

TEST(PipelineFaults, SizesDeviate) {
  expect_told(
      run_failing([](PipelineOptions&, Chain& chain) { chain.rows = {3, 3, 3, 3, 3, 2, 3, 3}; }), 0,
      "pipeline: stage 0, micro-batch 5 (0SEND_F5): the output is a Double [2, 2, 6], but expected a Double [3, 2, "
      "6]: as in the batch's first micro-batch");
}

TEST(PipelineFaults, TheLastStageGivesNoLoss) {
  expect_told(run_failing([](PipelineOptions& options, Chain&) {
                if (options.group.rank() == 3)
                  options.stages[3].forward = [](int, const at::Tensor& input) { return input * 2; };
              }),
              3, "stage 3, micro-batch 0 (3F0): the last stage returned a tensor of sizes [3, 2, 6]");
}

TEST(PipelineFaults, StagesThatAreMissing) {
  run_ranks(1, [](comm::World& world) {
    PipelineExecutor executor({.group = world.group()});
    EXPECT_NE(error_of([&] { executor.run(make_schedule("1f1b", {})); }).find("puts stage 0 on rank 0"),
              std::string::npos);
    EXPECT_NE(error_of([&] { executor.run(make_schedule("1f1b", {.ranks = 2})); }).find("is for 2 ranks"),
              std::string::npos);
  });
}

}  // namespace
