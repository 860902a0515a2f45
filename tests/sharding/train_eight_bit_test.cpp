// tessera train --optim adamw_8bit and lion_8bit: the same bits under every strategy and after resuming on a different
// number of processes.

#include <gtest/gtest.h>
#include <tests/distributed/resume_jobs.h>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <tessera/train/core/update.h>

namespace tessera::testing {
namespace {

class TrainEightBit : public ResumeJobs {
 protected:
  /// Three matrices of every block have at least 4096 elements; the other matrices and the vectors have fewer. Tables
  /// get no 8-bit states.
  RunConfig eight_bit(const std::string& output, const std::string& optim, const Words& more, int steps = 4) const {
    return config(output, steps,
                  Words{"--config_overrides",
                        "n_layer=2,n_embd=52,n_head=2,vocab_size=257,n_positions=16,bos_token_id=256,eos_token_id=256,"
                        "resid_pdrop=0.1,embd_pdrop=0.1,attn_pdrop=0.1",
                        "--optim", optim} +
                      more);
  }

  /// Returns the bytes of the weights.
  std::string train(int ranks, const RunConfig& config) const {
    train_on(ranks, config);
    return HasFailure() ? "" : read_file(path_join(config.output.output_dir, "model.safetensors"));
  }

  double last_loss(const std::string& output) const {
    const std::string record = numbers(output);
    const std::size_t found = record.rfind("loss=");
    return std::stod(record.substr(found + 5));
  }
};

const Words fixed = {"--deterministic_reduce", "--logical_shards", "12"};
const Layout layouts[] = {{"ddp_3", 3, {}},
                          {"zero1_2", 2, {"--zero_stage", "1"}},
                          {"zero2_3", 3, {"--zero_stage", "2", "--reduce_bucket_size", "4096"}},
                          {"full_shard_3", 3, {"--fsdp", "full_shard auto_wrap"}},
                          {"shard_grad_op_2", 2, {"--fsdp", "shard_grad_op auto_wrap"}},
                          {"hybrid_4", 4, {"--fsdp", "hybrid_shard auto_wrap", "--shard_group_size", "2"}},
                          {"offload_2", 2, {"--fsdp", "full_shard auto_wrap", "--cpu_offload", "optimizer"}}};

class TrainEightBitOver : public TrainEightBit, public ::testing::WithParamInterface<Layout> {};

TEST_P(TrainEightBitOver, HasTheBitsOfOneProcess) {
  const std::string alone = train(1, eight_bit("alone", "adamw_8bit", fixed));
  EXPECT_TRUE(train(GetParam().ranks, eight_bit("cut", "adamw_8bit", fixed + GetParam().flags)) == alone);
}

INSTANTIATE_TEST_SUITE_P(Layouts, TrainEightBitOver, ::testing::ValuesIn(layouts),
                         [](const auto& info) { return info.param.name; });

TEST_F(TrainEightBit, IsNearStatesOfFloat32) {
  const std::string narrow = train(1, eight_bit("narrow", "adamw_8bit", fixed));
  EXPECT_FALSE(narrow == train(1, eight_bit("wide", "adamw", fixed))) << "eight bits change nothing";
  EXPECT_NEAR(last_loss("narrow"), last_loss("wide"), 0.02);
}

// Weights are in one file per stage, so this compares the losses, to the last digit.
TEST_F(TrainEightBit, PipelinesToo) {
  train_on(1, eight_bit("alone", "adamw_8bit", fixed));
  train_on(2, eight_bit("stages", "adamw_8bit", fixed + Words{"--pp_size", "2"}));
  EXPECT_NE(numbers("alone"), "");
  EXPECT_EQ(numbers("stages"), numbers("alone"));
}

TEST_F(TrainEightBit, LionToo) {
  const std::string alone = train(1, eight_bit("alone", "paged_lion_8bit", fixed));
  EXPECT_FALSE(alone == train(1, eight_bit("wide", "lion", fixed))) << "eight bits change nothing";
  EXPECT_TRUE(train(2, eight_bit("shards", "lion_8bit", fixed + Words{"--fsdp", "full_shard auto_wrap"})) == alone);
}

class TrainEightBitSaved : public TrainEightBit, public ::testing::WithParamInterface<std::string> {};

TEST_P(TrainEightBitSaved, AResumedRunMayHaveOtherProcesses) {
  const std::string alone = train(1, eight_bit("alone", "adamw_8bit", fixed));
  const Words saves = {"--save_steps", "2", "--save_state_dict_type", GetParam()};
  train(3, eight_bit("saved", "adamw_8bit", fixed + saves + Words{"--fsdp", "full_shard auto_wrap"}));
  const Words resumed = {"--resume_from_checkpoint", path("saved/checkpoint-2")};
  EXPECT_TRUE(train(1, eight_bit("one", "adamw_8bit", fixed + resumed)) == alone);
  EXPECT_TRUE(train(2, eight_bit("two", "adamw_8bit", fixed + resumed + Words{"--zero_stage", "2"})) == alone);
  // Other optimizers with the same averages can also read these states.
  EXPECT_NE(train(1, eight_bit("wide", "adamw", fixed + resumed)), "");
  EXPECT_NEAR(last_loss("wide"), last_loss("alone"), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Forms, TrainEightBitSaved, ::testing::Values("sharded", "full"),
                         [](const auto& info) { return info.param; });

/// Parts of a user's model: an embedding table and two linear maps.
struct Net : torch::nn::Module {
  Net() {
    register_module("embed", torch::nn::Embedding(100, 64));
    register_module("lm_head", torch::nn::Linear(64, 100));
    register_module("map", torch::nn::Linear(64, 100));
  }
};

// As in transformers' Trainer, where bitsandbytes keeps 32-bit states for each nn.Embedding, but not for the head.
TEST(EightBitUpdate, TablesOfEmbeddingsStayWide) {
  const auto narrow = [](comm::World& world, const train::ParameterKinds& kinds) {
    Net net;
    const Sharded sharded(net, {.strategy = "ddp", .group = world.group()});
    OptimizationConfig config;
    config.optim = OptimizerKind::lion_8bit;
    const auto update = train::configured_update(config, train::decay_everything(0), kinds)(net, sharded);
    std::string names;
    for (const train::HeldState& state : update->states(sharded))
      if (state.encoded) names += state.name + " ";
    return names;
  };
  run_ranks(1, [&](comm::World& world) {
    EXPECT_EQ(narrow(world, {}), "exp_avg.lm_head.weight exp_avg.map.weight ");
    const auto all_but_biases = [](const std::string& name) { return name.ends_with("weight"); };
    EXPECT_EQ(narrow(world, {all_but_biases, all_but_biases}), "exp_avg.lm_head.weight ");
  });
}

// Each part of a matrix is divided into its own blocks, so results differ slightly.
TEST_F(TrainEightBit, TensorParallelIsNear) {
  const Words cut = {"--tp_size", "2", "--num_processes", "2", "--save_steps", "2"};
  train(1, eight_bit("alone", "adamw_8bit", {"--seed", "3"}));
  train(2, eight_bit("parts", "adamw_8bit", cut + Words{"--seed", "3"}));
  EXPECT_NEAR(last_loss("parts"), last_loss("alone"), 0.01);
  // With whole matrices again: the states come from the file, in blocks of whole matrices.
  train(1, eight_bit("whole", "adamw_8bit", {"--seed", "3", "--resume_from_checkpoint", path("parts/checkpoint-2")}));
  EXPECT_NEAR(last_loss("whole"), last_loss("alone"), 0.01);
}

}  // namespace
}  // namespace tessera::testing
