// Checkpoint contents besides weights and optimizer states: the best model, the schedule, the loss scale's hysteresis.
// Also checkpoints of the model only.

#include <tessera/checkpoint/checkpoint.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tests/checkpoint/saved.h>

namespace tessera::checkpoint {
namespace {

class BestCheckpointTest : public ::testing::Test {
 protected:
  static RunState state(std::int64_t step) {
    RunState state;
    state.step = state.samples = state.models[0].optimizer_steps = step;
    return state;
  }
  std::string save(const RunState& state, std::int64_t keep = 0) {
    return save_checkpoint(folder_.path(), NamedTensors{{"weight", at::ones({2})}}, Value::make_object(), nullptr,
                           state, {{"exp_avg.0", at::ones({3})}}, keep);
  }
  bool exists(std::int64_t step) const { return path_exists(path_join(folder_.path(), concat("checkpoint-", step))); }

  TemporaryFolder folder_;
};

TEST_F(BestCheckpointTest, IsRememberedWithScheduleAndHysteresis) {
  RunState before = state(4);
  before.best_metric = 2.25;
  before.best_step = 2;
  before.best_model_checkpoint = path_join(folder_.path(), "checkpoint-2");
  before.models[0].schedule = Value::make_object({{"learning_rate", Value::of(0.125)}});
  before.models[0].schedule_steps = 3;
  before.models[0].loss_scale = {.scale = 64, .good_steps = 1, .skipped_steps = 1, .hysteresis = 2};
  const RunState after = read_run_state(save(before));
  EXPECT_EQ(after.best_metric, 2.25);
  EXPECT_EQ(after.best_step, 2);
  EXPECT_EQ(after.best_model_checkpoint, before.best_model_checkpoint);
  EXPECT_EQ(after.models[0].schedule.at("learning_rate").as_real(), 0.125);
  EXPECT_EQ(after.models[0].schedule_steps, 3);
  EXPECT_EQ(after.models[0].loss_scale.value().scale, 64);
  EXPECT_EQ(after.models[0].loss_scale->hysteresis, 2);
  EXPECT_TRUE(after.trainer_state);
  const RunState none = read_run_state(save(state(5)));
  EXPECT_FALSE(none.best_metric);
  EXPECT_EQ(none.best_model_checkpoint, "");
  EXPECT_TRUE(none.models[0].schedule.is_null());
}

TEST_F(BestCheckpointTest, WhatTheFacesCountIsRememberedWithoutTrainerState) {
  RunState before = state(6);
  before.trainer_state = false;
  before.micro_steps = 3;
  before.loader_epochs = {2, 0};
  before.custom_objects = 1;
  before.client_state = Value::make_object({{"epoch", Value::of(5)}});
  before.models.push_back({.optimizer_steps = 4, .schedule_steps = 2, .torch_scheduler_steps = 7});
  before.mesh = {.ranks = 4, .strategy = "hybrid_shard", .shard_ranks = 2, .replicate_ranks = 2};
  write_run_state(folder_.path(), before);
  EXPECT_EQ(list_folder(folder_.path()), std::vector<std::string>{kRunStateFile});
  const RunState after = read_run_state(folder_.path());
  EXPECT_FALSE(after.trainer_state);
  EXPECT_EQ(after.step, 6);
  EXPECT_EQ(after.micro_steps, 3);
  EXPECT_EQ(after.loader_epochs, before.loader_epochs);
  EXPECT_EQ(after.custom_objects, 1);
  EXPECT_EQ(after.client_state.at("epoch").as_int(), 5);
  ASSERT_EQ(after.models.size(), 2u);
  EXPECT_EQ(after.models[0].optimizer_steps, 6);
  EXPECT_EQ(after.models[1].optimizer_steps, 4);
  EXPECT_EQ(after.models[1].schedule_steps, 2);
  EXPECT_EQ(after.models[1].torch_scheduler_steps, 7);
  EXPECT_FALSE(after.models[1].loss_scale);
  EXPECT_EQ(after.mesh.value().strategy, "hybrid_shard");
  EXPECT_EQ(after.mesh->replicate_ranks, 2);
}

TEST_F(BestCheckpointTest, IsNotPruned) {
  save(state(1), 2);
  for (std::int64_t step = 2; step <= 6; ++step) {
    RunState next = state(step);
    next.best_model_checkpoint = path_join(folder_.path(), "checkpoint-1");
    save(next, 2);
  }
  EXPECT_TRUE(exists(1) && exists(6));
  EXPECT_FALSE(exists(2) || exists(3) || exists(4) || exists(5));
  RunState last = state(7);
  last.best_model_checkpoint = path_join(folder_.path(), "checkpoint-6");
  save(last, 1);  // keep one, but both the newest and the best stay
  EXPECT_TRUE(exists(6) && exists(7));
  EXPECT_FALSE(exists(1));
}

TEST_F(BestCheckpointTest, OfTheModelOnlyCannotBeResumed) {
  save(state(1));
  RunState model = state(2);
  model.model_only = true;
  const std::string folder = save(model, 2);
  EXPECT_TRUE(path_exists(path_join(folder, "model.safetensors")));
  EXPECT_FALSE(path_exists(path_join(folder, "optimizer.safetensors")));
  try {
    verify_checkpoint(folder);
    ADD_FAILURE() << "verified";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("it contains only the model (--save_only_model)"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(choose_newest(step_folders(folder_.path()), {}), path_join(folder_.path(), "checkpoint-1"));
  EXPECT_TRUE(looks_complete(folder));
}

}  // namespace
}  // namespace tessera::checkpoint
