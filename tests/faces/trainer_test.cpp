// tessera::Trainer: Hugging Face's Trainer around a plain module, on real processes.
#include <tests/faces/trainer_options.h>

#include <tessera/base/file.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

struct Watcher : TrainerCallback {
  std::vector<std::string> events;
  std::vector<double> losses;
  std::int64_t stop_after = -1, save_at = -1;
  void on_train_begin(const TrainerState&, TrainerControl&) override { events.push_back("begin"); }
  void on_step_end(const TrainerState& state, TrainerControl& control) override {
    if (state.global_step == stop_after) control.should_training_stop = true;
    if (state.global_step == save_at) control.should_save = control.should_evaluate = true;
  }
  void on_epoch_end(const TrainerState& state, TrainerControl&) override {
    events.push_back(concat("epoch ", state.global_step));
  }
  void on_log(const TrainerState& state, TrainerControl&, const Metrics& logs) override {
    if (logs.count("loss")) losses.push_back(logs.at("loss"));
  }
  void on_evaluate(const TrainerState& state, TrainerControl&, const Metrics&) override {
    events.push_back(concat("evaluate ", state.global_step));
  }
  void on_save(const TrainerState& state, TrainerControl&, const std::string&) override {
    events.push_back(concat("save ", state.global_step));
  }
  void on_train_end(const TrainerState&, TrainerControl&) override { events.push_back("end"); }
};

class TrainerRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, TrainerRanks, ::testing::Values(1, 2, 4));

TEST_P(TrainerRanks, fixed_order_has_the_bits_of_the_plain_loop) {
  const int ranks = GetParam();
  const Plain plain = train_plain(
      2 * ranks, 6, [](const at::Tensor& p) { return p.dim() > 1 ? 0.01 : 0.0; }, [](int) { return 0.002; });
  run_ranks(ranks, [&](comm::World& world) {
    for (const char* strategy : {"ddp", "zero2", "full_shard"}) {
      auto watcher = std::make_shared<Watcher>();
      TrainerOptions given =
          options({"--deterministic_reduce", "--gradient_accumulation_steps=2", concat("--strategy=", strategy),
                   concat("--per_device_train_batch_size=", all_rows / (2 * world.size()))});
      given.callbacks = {watcher};
      Trainer trainer(std::move(given));
      const TrainOutput output = trainer.train();
      EXPECT_EQ(output.global_step, 6);
      expect_same_bits(weights_of(trainer.training().sharded()), plain.weights, strategy);
      ASSERT_EQ(watcher->losses.size(), 3u);
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(watcher->losses[i], (plain.losses[2 * i] + plain.losses[2 * i + 1]) / 2, 1e-12);
      EXPECT_EQ(watcher->events, (std::vector<std::string>{"begin", "epoch 6", "end"}));
      EXPECT_EQ(trainer.is_fsdp_enabled(), std::string(strategy) == "full_shard");
    }
  });
}

TEST_P(TrainerRanks, evaluation_counts_every_row_once) {
  const RowSource rows = steps_of(1);
  const auto net = make_net();
  for (const std::int64_t count : {1, 7, 23, 24}) {
    const at::Tensor x = global_batch(0, all_rows).x.narrow(0, 0, count),
                     y = global_batch(0, all_rows).y.narrow(0, 0, count);
    const at::Tensor outputs = net->forward(x).detach();
    const double want = (outputs - y).square().mean().item<double>();
    run_ranks(GetParam(), [&](comm::World&) {
      for (const char* strategy : {"ddp", "full_shard"}) {
        TrainerOptions given = options({"--per_device_eval_batch_size=3", concat("--strategy=", strategy)});
        given.eval_dataset = tensor_rows({x, y});
        given.compute_metrics = [&](const at::Tensor& out, const TensorBatch& batch) {
          EXPECT_EQ(out.size(0), batch[0].size(0));
          return Metrics{{"rows", static_cast<double>(out.size(0))}};
        };
        Trainer trainer(std::move(given));
        const Metrics metrics = trainer.evaluate();
        EXPECT_NEAR(metrics.at("eval_loss"), want, 1e-6);
        EXPECT_EQ(metrics.at("eval_rows"), static_cast<double>(count));
        const PredictionOutput predicted = trainer.predict(tensor_rows({x, y}));
        ASSERT_EQ(predicted.predictions.sizes(), outputs.sizes());
        EXPECT_LE((predicted.predictions - outputs).abs().max().item<double>(), 1e-5) << "in the order of the rows";
        EXPECT_NEAR(predicted.metrics.at("test_loss"), want, 1e-6);
      }
    });
  }
}

TEST(Trainer, callbacks_stop_save_and_evaluate) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World&) {
    auto watcher = std::make_shared<Watcher>();
    watcher->save_at = 2;
    watcher->stop_after = 4;
    TrainerOptions given =
        options({"--per_device_train_batch_size=12", "--save_strategy=no", "--output_dir=" + folder.path()});
    given.eval_dataset = steps_of(1);
    given.callbacks = {watcher};
    Trainer trainer(std::move(given));
    EXPECT_EQ(trainer.train().global_step, 4);
    EXPECT_EQ(watcher->events, (std::vector<std::string>{"begin", "evaluate 2", "save 2", "end"}));
    trainer.save_model();
    trainer.set_state_dict_type("FULL_STATE_DICT");
    EXPECT_EQ(trainer.arguments().values.output.save_state_dict_type, StateDictType::full);
    EXPECT_THROW(trainer.set_state_dict_type("WHOLE_STATE_DICT"), InputError);
  });
  EXPECT_TRUE(path_exists(path_join(folder.path(), "checkpoint-2/trainer_state.json")));
  EXPECT_TRUE(path_exists(path_join(folder.path(), "model.safetensors")));
}

TEST(Trainer, continues_with_the_same_bits) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const std::vector<std::string> flags = {"--per_device_train_batch_size=6",
                                            "--gradient_accumulation_steps=2",
                                            "--strategy=zero3",
                                            "--lr_scheduler_type=cosine",
                                            "--train_sampling_strategy=random",
                                            "--num_train_epochs=2",
                                            "--save_steps=4",
                                            "--save_total_limit=2",
                                            "--output_dir=" + folder.path()};
    Weights want;
    {
      Trainer trainer(options(flags));
      EXPECT_EQ(trainer.train().global_step, 12);
      want = weights_of(trainer.training().sharded());
    }
    world.group().barrier().wait();
    std::vector<std::string> more = flags;
    more.push_back("--resume_from_checkpoint=" + folder.path() + "/checkpoint-8");
    Trainer trainer(options(more));
    EXPECT_EQ(trainer.train().global_step, 12);
    expect_same_bits(weights_of(trainer.training().sharded()), want, "resumed at step 8");
  });
  EXPECT_FALSE(path_exists(path_join(folder.path(), "checkpoint-4"))) << "save_total_limit";
}

TEST(Trainer, replicas_of_one_process_share_the_batch) {
  const Plain plain =
      train_plain(2, 6, [](const at::Tensor& p) { return p.dim() > 1 ? 0.01 : 0.0; }, [](int) { return 0.002; });
  run_ranks(1, [&](comm::World&) {
    TrainerOptions given = options({concat("--per_device_train_batch_size=", all_rows / 2)});
    given.data_parallel = DataParallelOptions{.replicas = 2};
    Trainer trainer(std::move(given));
    EXPECT_EQ(trainer.n_gpu(), 2);
    const TrainOutput output = trainer.train();
    EXPECT_EQ(output.global_step, 6) << "a step takes the rows of both";
    expect_close(weights_of(trainer.training().sharded()), plain.weights, 2e-5, "two replicas");
  });
  run_ranks(2, [&](comm::World&) {
    TrainerOptions given = options({});
    given.data_parallel = DataParallelOptions{.replicas = 2};
    EXPECT_THROW(Trainer(std::move(given)), InputError);
  });
}

TEST(Trainer, what_is_missing_is_an_input_error) {
  run_ranks(1, [](comm::World&) {
    EXPECT_THROW(TrainingArguments({"--lerning_rate=1"}), InputError);
    EXPECT_EQ(TrainingArguments({"--seed", "3"}, {"--seed=4", "--max-steps=5"}).values.optimization.seed, 3);
    EXPECT_EQ(TrainingArguments({"--seed", "3"}, {"--seed=4", "--max-steps=5"}).values.optimization.max_steps, 5);
    TrainerOptions given = options({});
    given.train_dataset.reset();
    Trainer trainer(std::move(given));
    EXPECT_THROW(trainer.train(), InputError);
    EXPECT_THROW(trainer.evaluate(), InputError);
    EXPECT_THROW(trainer.save_model(), InputError) << "no folder";
    TrainerOptions without = options({});
    without.loss = nullptr;
    EXPECT_THROW(Trainer(std::move(without)), InputError);
  });
}

}  // namespace
