// Checkpoints that the faces wrote when state.json contained the contents of today's tessera_state.json
// (tests/fixtures/checkpoints).
#include <tests/distributed/harness.h>
#include <tests/paths.h>

#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/stored_state.h>
#include <tessera/faces/accelerator.h>
#include <tessera/faces/deepspeed.h>
#include <tessera/faces/trainer.h>

#include <torch/nn/modules/linear.h>

#include <filesystem>

namespace {

using namespace tessera;
using namespace tessera::testing;

struct Small : torch::nn::Module {
  torch::nn::Linear map{3, 2};
  Small() { register_module("map", map); }
  at::Tensor forward(at::Tensor x) { return map(x); }
};

std::string fixture(const std::string& name) { return source_path("tests/fixtures/checkpoints/" + name); }

/// Expects the folder's weights and optimizer states. Collective.
void expect_holds(faces::Training& training, const std::string& folder) {
  std::map<std::string, at::Tensor> weights;
  for (auto& [name, value] : checkpoint::read_hf_weights(folder)) weights[name] = value;
  const auto& parameters = training.sharded().named_parameters();
  EXPECT_EQ(weights.size(), parameters.size());
  for (const ShardedParameter& p : parameters)
    EXPECT_TRUE(at::equal(training.sharded().gather_like(p, p.local.detach()), weights.at(p.name))) << p.name;
  const checkpoint::StoredState stored(folder);
  const auto states = training.update().states(training.sharded());
  EXPECT_EQ(states.size(), 4u);
  EXPECT_EQ(stored.tensors().size(), states.size());
  for (const auto& [name, held, parameter, encoded] : states) {
    const at::Tensor value = at::empty(parameter->shape);
    stored.read(name, 0, value);
    EXPECT_TRUE(at::equal(training.sharded().gather_like(*parameter, held), value)) << name;
  }
}

void expect_scale(faces::Training& training) {
  ASSERT_NE(training.loss_scale(), nullptr);
  const optim::LossScaleState state = training.loss_scale()->state();
  EXPECT_EQ(state.scale, 32768);
  EXPECT_EQ(state.good_steps, 1);
  EXPECT_EQ(state.skipped_steps, 1);
  EXPECT_EQ(training.update().steps(), 1);
}

class OldCheckpoints : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OldCheckpoints, ::testing::Values(1, 2));

TEST_P(OldCheckpoints, of_the_trainer) {
  const TemporaryFolder folder;
  std::filesystem::copy(fixture("trainer"), folder.path(), std::filesystem::copy_options::recursive);
  run_ranks(GetParam(), [&](comm::World&) {
    for (const std::string& from : {path_join(folder.path(), "checkpoint-2"), std::string("last")}) {
      at::manual_seed(1);
      TrainerOptions options;
      options.model = std::make_shared<Small>();
      options.arguments =
          TrainingArguments({"--output_dir=" + folder.path(), "--resume_from_checkpoint=" + from, "--max_steps=2",
                             concat("--per_device_train_batch_size=", 4 / GetParam()),
                             "--lr_scheduler_type=reduce_lr_on_plateau", "--disable_tqdm", "--eval_strategy=steps",
                             "--eval_steps=1", "--metric_for_best_model=loss", "--strategy=full_shard"},
                            {});
      options.loss = loss_of<Small>(
          [](Small& net, const TensorBatch& batch) { return (net.forward(batch[0]) - batch[1]).square().mean(); });
      options.train_dataset = options.eval_dataset = tensor_rows({at::randn({8, 3}), at::randn({8, 2})});
      Trainer trainer(std::move(options));
      trainer.train();
      const TrainerState& state = trainer.state();
      EXPECT_EQ(state.global_step, 2);
      EXPECT_EQ(state.best_global_step, 2);
      EXPECT_NEAR(state.best_metric.value(), 1.6748379, 1e-6);
      EXPECT_EQ(state.best_model_checkpoint, "trainer/checkpoint-2");
      EXPECT_EQ(trainer.training().update().steps(), 2);
      EXPECT_EQ(trainer.training().schedule_steps(), 2);
      expect_holds(trainer.training(), fixture("trainer/checkpoint-2"));
    }
  });
}

TEST_P(OldCheckpoints, of_the_accelerator) {
  run_ranks(GetParam(), [&](comm::World&) {
    Accelerator accelerator({.arguments = {"--fp16", "--strategy=full_shard"}});
    auto [model, optimizer, scheduler] = accelerator.prepare(
        std::make_shared<Small>(), OptimizerSettings{.lr = 0.01},
        optim::Schedule{.type = ScheduleType::linear, .warmup_steps = 1, .total_steps = 10, .learning_rate = 0.01});
    accelerator.load_state(fixture("accelerator"));
    expect_holds(model.training(), fixture("accelerator"));
    expect_scale(model.training());
    EXPECT_EQ(model.training().schedule_steps(), 1);
  });
}

TEST_P(OldCheckpoints, of_the_engine) {
  run_ranks(GetParam(), [&](comm::World&) {
    auto engine =
        initialize(std::make_shared<Small>(), {.arguments = {"--fp16", "--learning_rate=0.01", "--strategy=zero3"}});
    const auto loaded = engine.load_checkpoint(fixture("deepspeed"));
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->client_state.at("epoch").as_int(), 5);
    EXPECT_EQ(engine.global_steps(), 2);
    EXPECT_EQ(engine.loss_scale(), 32768);
    expect_holds(engine.training(), fixture("deepspeed/global_step2"));
    expect_scale(engine.training());
  });
}

}  // namespace
