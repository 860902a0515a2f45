#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include <tessera/base/error.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/core/run_config.h>
#include <tessera/train/core/run_plan.h>
#include <tests/own_folder.h>

namespace tessera::train {
namespace {

RunConfig small_run() {
  RunConfig config;
  config.optimization.per_device_train_batch_size = 4;
  config.optimization.gradient_accumulation_steps = 2;
  config.optimization.num_train_epochs = 3;
  config.output.logging_steps = 5;
  config.output.save_strategy = SaveStrategy::no;
  return config;
}

/// The rows of every rank and micro-batch of steps [from, to), in the order (step, micro-batch, rank, row).
std::vector<std::int64_t> all_rows(const RunPlan& plan, std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> rows;
  for (std::int64_t step = from; step < to; ++step)
    for (std::int64_t micro = 0; micro < plan.micro_batches(step); ++micro)
      for (std::int64_t rank = 0; rank < plan.data_ranks; ++rank) {
        const layout::RowRange range = plan.rows_of(step, micro, rank, plan.equal_shares(step));
        for (std::int64_t row = 0; row < range.count; ++row) rows.push_back(range.begin + row);
      }
  return rows;
}

RC_GTEST_PROP(RunPlan, EveryRowIsTakenOnceAndStepsEndWithEpochs, ()) {
  RunConfig config = small_run();
  const std::int64_t ranks = *rc::gen::inRange(1, 9), blocks = *rc::gen::inRange(1, 200);
  config.optimization.per_device_train_batch_size = *rc::gen::inRange(1, 9);
  config.optimization.gradient_accumulation_steps = *rc::gen::inRange(1, 5);
  config.parallel.pp_size = *rc::gen::inRange(1, 3);
  const RunPlan plan = make_run_plan(config, ranks, blocks, false);
  // transformers, Trainer.set_initial_training_values
  const std::int64_t steps_per_epoch = (blocks + plan.rows_per_step() - 1) / plan.rows_per_step();
  RC_ASSERT(plan.total_steps == 3 * steps_per_epoch);
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
    RC_ASSERT(plan.samples(epoch * steps_per_epoch) == epoch * blocks);
    RC_ASSERT(plan.ends_epoch(epoch * steps_per_epoch));
  }
  const std::vector<std::int64_t> rows = all_rows(plan, 0, plan.total_steps);
  if (plan.equal_micro_batches)
    for (std::int64_t step = 0; step < plan.total_steps; ++step)
      RC_ASSERT(plan.micro_batches(step) == plan.accumulation);
  RC_ASSERT(static_cast<std::int64_t>(rows.size()) == 3 * blocks);
  for (std::size_t i = 0; i < rows.size(); ++i) RC_ASSERT(rows[i] == static_cast<std::int64_t>(i));

  const std::int64_t stop = *rc::gen::inRange<std::int64_t>(0, plan.total_steps);
  const RunPlan resumed = make_run_plan(config, ranks, blocks, false, {stop, plan.samples(stop)});
  RC_ASSERT(resumed.total_steps == plan.total_steps);
  for (std::int64_t step = stop; step <= plan.total_steps; ++step)
    RC_ASSERT(resumed.samples(step) == plan.samples(step));
}

TEST(RunPlan, EpochsAreStepsOfTransformers) {
  RunConfig config = small_run();  // 8 rows a step
  const auto steps = [&](std::int64_t rows, double epochs) {
    config.optimization.num_train_epochs = epochs;
    return make_run_plan(config, 1, rows, false).total_steps;
  };
  EXPECT_EQ(steps(20, 2), 6);
  EXPECT_EQ(steps(20, 1.4), 5) << "ceil(1.4 x 3)";
  EXPECT_EQ(steps(24, 2), 6);
  EXPECT_EQ(steps(3, 2), 2);
  EXPECT_EQ(steps(20, 0.1), 1);
}

TEST(RunPlan, SettingsThatNeedWholeStepsLetThemCrossEpochs) {
  const auto plan_of = [](auto change) {
    RunConfig config = small_run();  // 2 ranks x 4 rows x 2 micro-batches, 17 rows: one row is left over
    change(config);
    return make_run_plan(config, 2, 17, false);
  };
  EXPECT_EQ(plan_of([](RunConfig&) {}).total_steps, 6);
  const RunPlan fixed = plan_of([](RunConfig& c) { c.parallel.deterministic_reduce = true; });
  EXPECT_EQ(fixed.total_steps, 4) << "ceil(51 / 16)";
  EXPECT_EQ(fixed.rows_of_step(1), 16);
  EXPECT_EQ(plan_of([](RunConfig& c) { c.optimization.balance_batches = true; }).total_steps, 6);
  EXPECT_EQ(plan_of([](RunConfig& c) { c.optimization.preference_loss = PreferenceLoss::sigmoid; }).total_steps, 6);
}

TEST(RunPlan, EpochsBecomeStepsRoundedUp) {
  const RunPlan plan = make_run_plan(small_run(), 2, 50, false);  // 16 rows a step, 150 rows in three epochs
  EXPECT_EQ(plan.rows_per_step(), 16);
  EXPECT_EQ(plan.total_steps, 12);  // the last of four has 2 rows
  EXPECT_DOUBLE_EQ(plan.epoch(5), 1 + 2.0 / 7) << "the micro-batches of all ranks have 8 rows";
}

TEST(RunPlan, FractionsOfAnEpoch) {
  RunConfig config = small_run();
  config.optimization.num_train_epochs = 0.5;
  EXPECT_EQ(make_run_plan(config, 1, 80, false).total_steps, 5);
}

TEST(RunPlan, TheFirstStepIsLoggedWhenAsked) {
  RunConfig config = small_run();
  EXPECT_FALSE(make_run_plan(config, 1, 80, false).logs_after(1));
  config.output.logging_first_step = true;
  const RunPlan plan = make_run_plan(config, 1, 80, false);
  EXPECT_TRUE(plan.logs_after(1));
  EXPECT_FALSE(plan.logs_after(2));
  EXPECT_TRUE(plan.logs_after(5));
}

TEST(RunPlan, MaxStepsWins) {
  RunConfig config = small_run();
  config.optimization.max_steps = 7;
  EXPECT_EQ(make_run_plan(config, 1, 1000, false).total_steps, 7);
}

TEST(RunPlan, WarmupRatioIsOfAllStepsRoundedUp) {
  RunConfig config = small_run();
  config.optimization.max_steps = 25;
  config.optimization.warmup_ratio = 0.1;
  EXPECT_EQ(make_run_plan(config, 1, 1000, false).warmup_steps, 3);
  config.optimization.warmup_steps = 9;
  EXPECT_EQ(make_run_plan(config, 1, 1000, false).warmup_steps, 9);
}

TEST(RunPlan, TooFewBlocksForOneStep) {
  RunConfig config = small_run();
  config.parallel.deterministic_reduce = true;
  try {
    make_run_plan(config, 3, 23, false);
    FAIL() << "expected InputError";
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("23 rows"), std::string::npos) << text;
    EXPECT_NE(text.find("takes 24"), std::string::npos) << text;
    EXPECT_NE(text.find("--deterministic_reduce"), std::string::npos) << text;
    EXPECT_NE(text.find("--per_device_train_batch_size"), std::string::npos) << text;
  }
}

TEST(RunPlan, FewRowsAreOneStepOfEachEpoch) {
  const auto plan_of = [](const RunConfig& config, std::int64_t ranks, std::int64_t rows, ResumePoint from = {}) {
    return make_run_plan(config, ranks, rows, false, from);
  };
  RunConfig config = small_run();  // 8 rows per rank
  config.output.save_strategy = SaveStrategy::epoch;
  const RunPlan plan = plan_of(config, 3, 7);
  EXPECT_EQ(plan.total_steps, 3);
  EXPECT_EQ(plan.micro_batches(0), 1);
  std::vector<std::int64_t> begins, counts;
  for (std::int64_t step = 0; step < 2; ++step)
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const layout::RowRange rows = plan.rows_of(step, 0, rank, plan.equal_shares(step));
      begins.push_back(rows.begin);
      counts.push_back(rows.count);
    }
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 3, 5, 7, 10, 12}));
  EXPECT_EQ(counts, (std::vector<std::int64_t>{3, 2, 2, 3, 2, 2}));
  for (std::int64_t step = 1; step <= 3; ++step) EXPECT_TRUE(plan.saves_after(step)) << "the end of an epoch";

  const RunPlan resumed = plan_of(config, 1, 7, {2, 10});  // by a run with a different number of steps
  EXPECT_EQ(resumed.rows_of_step(2), 4) << "to the end of the epoch";
  EXPECT_EQ(resumed.rows_of_step(3), 7);
  EXPECT_EQ(resumed.total_steps, 4);

  const RunPlan one = plan_of(config, 3, 1);
  EXPECT_EQ(one.rows_of(0, 0, 2, one.equal_shares(0)).count, 0) << "a rank without a row";
  const auto refused = [&](auto change) {
    RunConfig other = config;
    change(other);
    EXPECT_THROW(plan_of(other, 3, 1), InputError);
  };
  refused([](RunConfig& c) { c.data.dataloader_drop_last = true; });  // no complete micro-batch
  refused([](RunConfig& c) { c.parallel.deterministic_reduce = true; });
  EXPECT_THROW(plan_of(config, 1, 0), InputError);
}

TEST(RunPlan, WhatHappensAfterWhichStep) {
  RunConfig config = small_run();
  config.optimization.max_steps = 12;
  config.output.eval_strategy = Interval::steps;
  config.output.eval_steps = 4;
  config.output.save_strategy = SaveStrategy::epoch;
  const RunPlan plan = make_run_plan(config, 1, 20, true);  // 8 rows a step, three steps an epoch
  std::vector<std::int64_t> logs, evaluations, saves;
  for (std::int64_t step = 1; step <= 12; ++step) {
    if (plan.logs_after(step)) logs.push_back(step);
    if (plan.evaluates_after(step)) evaluations.push_back(step);
    if (plan.saves_after(step)) saves.push_back(step);
  }
  EXPECT_EQ(logs, (std::vector<std::int64_t>{5, 10, 12}));
  EXPECT_EQ(evaluations, (std::vector<std::int64_t>{4, 8, 12}));
  EXPECT_EQ(saves, (std::vector<std::int64_t>{3, 6, 9, 12}));
}

std::vector<std::int64_t> steps_where(const RunPlan& plan, bool (RunPlan::*happens)(std::int64_t) const) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= plan.total_steps; ++step)
    if ((plan.*happens)(step)) steps.push_back(step);
  return steps;
}

using Steps = std::vector<std::int64_t>;

TEST(RunPlan, LoggingByEpochOrNotAtAll) {
  RunConfig config = small_run();
  config.optimization.max_steps = 12;
  config.output.logging_strategy = Interval::epoch;
  EXPECT_EQ(steps_where(make_run_plan(config, 1, 20, false), &RunPlan::logs_after), (Steps{3, 6, 9, 12}));
  config.output.logging_strategy = Interval::no;
  EXPECT_EQ(steps_where(make_run_plan(config, 1, 20, false), &RunPlan::logs_after), Steps{});
  config.output.logging_first_step = true;
  EXPECT_EQ(steps_where(make_run_plan(config, 1, 20, false), &RunPlan::logs_after), Steps{1});
}

TEST(RunPlan, SharesOfAllStepsAreRoundedUp) {
  RunConfig config = small_run();
  config.optimization.max_steps = 11;
  config.output.logging_steps = 0.2;  // 2.2 -> 3
  config.output.eval_strategy = Interval::steps;
  config.output.eval_steps = 0.5;  // 5.5 -> 6
  config.output.save_strategy = SaveStrategy::steps;
  config.output.save_steps = 0.9;
  const RunPlan plan = make_run_plan(config, 1, 1000, true);
  EXPECT_EQ(steps_where(plan, &RunPlan::logs_after), (Steps{3, 6, 9, 11}));
  EXPECT_EQ(steps_where(plan, &RunPlan::evaluates_after), (Steps{6, 11}));
  EXPECT_EQ(steps_where(plan, &RunPlan::saves_after), (Steps{10, 11}));
}

TEST(RunPlan, EvaluationsMayBeginLater) {
  RunConfig config = small_run();
  config.optimization.max_steps = 12;
  config.output.eval_strategy = Interval::steps;
  config.output.eval_steps = 2;
  config.output.eval_delay = 7;
  EXPECT_EQ(steps_where(make_run_plan(config, 1, 20, true), &RunPlan::evaluates_after), (Steps{8, 10, 12}));
  config.output.eval_strategy = Interval::epoch;
  config.output.eval_delay = 3;  // epochs of three steps
  EXPECT_EQ(steps_where(make_run_plan(config, 1, 20, true), &RunPlan::evaluates_after), (Steps{9, 12}));
}

TEST(RunPlan, TheBestAreSavedWhenTheyAreFound) {
  RunConfig config = small_run();
  config.optimization.max_steps = 6;
  config.output.save_strategy = SaveStrategy::best;
  EXPECT_EQ(steps_where(make_run_plan(config, 1, 20, true), &RunPlan::saves_after), Steps{});
}

TEST(RunPlan, PartsOfAnEpochAreCountedInMicroBatches) {
  RunConfig config = small_run();  // 4 rows x 2 micro-batches
  const RunPlan plan = make_run_plan(config, 1, 18, false);
  EXPECT_EQ(plan.steps_per_epoch(), 3);
  EXPECT_DOUBLE_EQ(plan.epoch(1), 2.0 / 5) << "as transformers counts; 8 of 18 rows would be 0.44";
  EXPECT_DOUBLE_EQ(plan.epoch(3), 1);
  EXPECT_DOUBLE_EQ(plan.epoch(5), 1 + 4.0 / 5);
}

TEST(RunPlan, AnEpochMayDropWhatFillsNoMicroBatch) {
  RunConfig config = small_run();  // 4 rows x 2 micro-batches
  config.data.dataloader_drop_last = true;
  const RunPlan plan = make_run_plan(config, 1, 19, false);
  EXPECT_EQ(plan.total_steps, 6) << "three epochs of 8 rows and 8; 3 are left out";
  EXPECT_DOUBLE_EQ(plan.epoch(2), 1);
  EXPECT_TRUE(plan.ends_epoch(2) && plan.ends_epoch(4) && !plan.ends_epoch(3));
  EXPECT_EQ(plan.first_row(1, 1, 0), 12);
  EXPECT_EQ(plan.first_row(2, 0, 0), 19) << "the next epoch's order begins after all 19";
  EXPECT_EQ(plan.first_row(5, 1, 0), 2 * 19 + 12);
  const RunPlan short_step = make_run_plan(config, 1, 22, false);  // five micro-batches: steps of two, two and one
  EXPECT_EQ(short_step.total_steps, 9);
  EXPECT_EQ(short_step.rows_of_step(2), 4);
  EXPECT_EQ(short_step.micro_batches(2), 1);
  EXPECT_EQ(short_step.first_row(3, 0, 0), 22);
  EXPECT_EQ(make_run_plan(config, 1, 24, false).first_row(3, 0, 0), 24);
  EXPECT_EQ(make_run_plan(config, 1, 5, false).rows_of_step(0), 4) << "fewer than a step";
}

TEST(RunPlan, CountsRanksAndMicroBatchesThatHaveRows) {
  RunConfig config = small_run();                            // 4 rows x 2 micro-batches
  const RunPlan plan = make_run_plan(config, 3, 26, false);  // steps of 24 and 2
  EXPECT_EQ(plan.ranks_with_rows(0), 3);
  EXPECT_EQ(plan.micro_batches_with_rows(0), 6);
  EXPECT_EQ(plan.ranks_with_rows(1), 2);
  EXPECT_EQ(plan.micro_batches_with_rows(1), 2);
  config.parallel.pp_size = 2;
  EXPECT_EQ(make_run_plan(config, 1, 9, false).micro_batches_with_rows(1), 1) << "of two";
}

TEST(RunPlan, ACheckpointSaysWhereInThePlanItIs) {
  RunConfig config = small_run();  // 2 processes x 4 rows x 2 micro-batches
  config.optimization.num_train_epochs = 2.5;
  config.output.eval_strategy = Interval::steps;
  config.output.eval_steps = 0.25;  // a quarter of all steps
  config.output.save_strategy = SaveStrategy::steps;
  config.output.save_steps = 3;
  const RunPlan plan = make_run_plan(config, 2, 100, true, {.step = 2, .samples = 24});
  checkpoint::RunState state;
  state.seed = 11;
  plan.write_to(state, 7);
  EXPECT_EQ(state.step, 7);
  EXPECT_EQ(state.samples, 100);
  EXPECT_DOUBLE_EQ(state.epoch, 1);
  EXPECT_EQ(state.max_steps, 2 + 5 + 7 + 4)
      << "76 rows of this epoch, all of the next, half of the seven steps of the last";
  EXPECT_DOUBLE_EQ(state.num_train_epochs, 2.5);
  EXPECT_EQ(state.train_batch_size, 4);
  EXPECT_EQ(state.logging_steps, 5);
  EXPECT_EQ(state.eval_steps, 5) << "a quarter of 18 steps, rounded up";
  EXPECT_EQ(state.save_steps, 3);
  EXPECT_EQ(state.seed, 11u) << "settings outside the plan do not change";
}

TEST(RunPlan, AResumedRunMayBeginItsEpochsDataAgain) {
  RunConfig config = small_run();
  config.output.ignore_data_skip = true;
  const RunPlan plan = make_run_plan(config, 1, 20, false, {4, 32});  // 12 rows into the second epoch
  EXPECT_EQ(plan.first_row(4, 0, 0), 20);
  EXPECT_EQ(plan.first_row(5, 0, 0), 28);
  EXPECT_EQ(plan.rows_of_step(6), 4) << "the restarted epoch ends as it should have";
  EXPECT_TRUE(plan.ends_epoch(7));
  EXPECT_EQ(plan.first_row(7, 0, 0), 40);
}

TEST(RunPlan, WithoutValidationDataNothingIsEvaluated) {
  RunConfig config = small_run();
  config.output.eval_strategy = Interval::steps;
  const RunPlan plan = make_run_plan(config, 1, 100, false);
  for (std::int64_t step = 1; step <= plan.total_steps; ++step) EXPECT_FALSE(plan.evaluates_after(step));
}

TEST(RunPlan, AResumedRunContinuesTheSameRows) {
  const RunPlan whole = make_run_plan(small_run(), 2, 50, false);
  const RunPlan rest = make_run_plan(small_run(), 2, 50, false, {4, whole.samples(4)});
  EXPECT_EQ(rest.total_steps, whole.total_steps);
  for (std::int64_t step = 4; step < 10; ++step) EXPECT_EQ(rest.first_row(step, 1, 1), whole.first_row(step, 1, 1));
  EXPECT_DOUBLE_EQ(rest.epoch(7), whole.epoch(7));
}

TEST(RunPlan, AResumedRunMayChangeItsBatch) {
  const RunPlan before = make_run_plan(small_run(), 2, 50, false);
  const RunPlan after = make_run_plan(small_run(), 1, 50, false, {3, before.samples(3)});  // 8 rows a step from here
  EXPECT_EQ(after.first_row(3, 0, 0), 48);
  EXPECT_EQ(after.samples(4), 50) << "the rest of the epoch";
  EXPECT_EQ(after.samples(5), 58);
  EXPECT_EQ(after.total_steps, 3 + 1 + 7 + 7);
}

}  // namespace
}  // namespace tessera::train
