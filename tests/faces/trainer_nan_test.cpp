// tessera::Trainer with non-finite gradients: --nan_policy, --nan_skip_limit, --logging_nan_inf_filter.
#include <tests/error_of.h>
#include <tests/faces/trainer_options.h>

#include <tessera/base/file.h>

#include <cmath>
#include <limits>
#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;

struct Watcher : TrainerCallback {
  std::vector<double> losses, rates;
  void on_log(const TrainerState&, TrainerControl&, const Metrics& logs) override {
    if (!logs.contains("grad_norm")) return;
    losses.push_back(logs.at("loss"));
    rates.push_back(logs.at("learning_rate"));
  }
};

/// Six steps; on the last rank, the loss of the steps in `bad` (counted from 0) is NaN.
TrainerOptions six_steps(const comm::World& world, std::set<std::int64_t> bad, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {concat("--per_device_train_batch_size=", all_rows / world.size()), "--logging_steps=1",
                               "--lr_scheduler_type=linear"});
  TrainerOptions made = options(flags);
  made.loss = loss_of<SimpleModel>([bad = std::move(bad), last = world.rank() + 1 == world.size(),
                                    step = std::make_shared<std::int64_t>(0)](SimpleModel& net, const auto& batch) {
    const at::Tensor loss = (net.forward(batch[0]) - batch[1]).square().mean();
    return bad.contains((*step)++) && last ? loss * std::numeric_limits<double>::quiet_NaN() : loss;
  });
  return made;
}

class TrainerNan : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, TrainerNan, ::testing::Values(1, 2));

TEST_P(TrainerNan, steps_are_skipped_and_count_in_the_schedule) {
  run_ranks(GetParam(), [&](comm::World& world) {
    for (const char* strategy : {"ddp", "full_shard"}) {
      const std::vector<std::string> flags = {"--nan_policy=skip", concat("--strategy=", strategy)};
      const auto good = std::make_shared<Watcher>(), bad = std::make_shared<Watcher>();
      Weights two_steps;
      {
        TrainerOptions made = six_steps(world, {}, flags);
        made.callbacks = {good};
        struct StopAfterTwo : TrainerCallback {
          void on_step_end(const TrainerState& state, TrainerControl& control) override {
            control.should_training_stop = state.global_step == 2;
          }
        };
        made.callbacks.push_back(std::make_shared<StopAfterTwo>());
        Trainer trainer(std::move(made));
        trainer.train();
        two_steps = weights_of(trainer.training().sharded());
      }
      TrainerOptions made = six_steps(world, {2, 3, 4, 5}, flags);
      made.callbacks = {bad};
      Trainer trainer(std::move(made));
      EXPECT_EQ(trainer.train().global_step, 6);
      expect_same_bits(weights_of(trainer.training().sharded()), two_steps, "skipped steps change no weight");
      ASSERT_EQ(bad->losses.size(), 6u);
      EXPECT_EQ(bad->losses[1], good->losses[1]);
      EXPECT_EQ(bad->losses[2], 0) << "a line whose only loss is not finite has no mean";
      EXPECT_LT(bad->rates[5], bad->rates[4]) << "the schedule advances";
    }
  });
}

TEST_P(TrainerNan, log_lines_show_what_is_not_finite_where_it_is_asked_for) {
  run_ranks(GetParam(), [&](comm::World& world) {
    for (const bool filter : {true, false}) {
      TrainerOptions made = six_steps(
          world, {3},
          {"--nan_policy=skip", concat("--logging_nan_inf_filter=", filter ? "true" : "false"), "--logging_steps=2"});
      const auto watcher = std::make_shared<Watcher>();
      made.callbacks = {watcher};
      Trainer trainer(std::move(made));
      const TrainOutput output = trainer.train();
      ASSERT_EQ(watcher->losses.size(), 3u);
      EXPECT_EQ(std::isfinite(watcher->losses[1]), filter);
      EXPECT_EQ(std::isfinite(output.training_loss), filter);
      EXPECT_TRUE(std::isfinite(watcher->losses[2]));
    }
  });
}

TEST_P(TrainerNan, a_run_ends_at_the_step_by_its_name_and_its_checkpoints_stay) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    const std::vector<std::string> out = {"--output_dir=" + folder.path(), "--save_steps=2", "--async_save=true"};
    const auto says = [&](std::set<std::int64_t> bad, std::vector<std::string> flags) {
      flags.insert(flags.end(), out.begin(), out.end());
      Trainer trainer(six_steps(world, std::move(bad), flags));
      return error_of<Error>([&] { trainer.train(); });
    };
    const std::string stopped = says({2}, {});
    const std::string limited = says({1, 2, 4, 5}, {"--nan_policy=skip", "--nan_skip_limit=1"});
    if (world.rank() != 0) {
      EXPECT_EQ(stopped + limited, "") << "rank 0 reports it";
      return;
    }
    EXPECT_TRUE(stopped.starts_with("step 3: the gradient norm is nan: the training diverged. Lower --learning_rate"))
        << stopped;
    EXPECT_TRUE(limited.starts_with("step 3: the gradient norm is nan after 1 consecutive skipped steps")) << limited;
    EXPECT_TRUE(path_exists(path_join(folder.path(), "checkpoint-2/manifest.json")));
  });
}

}  // namespace
