// tessera train --optim adamw_8bit and lion_8bit: the same bits under every strategy, and resumed on other numbers of
// processes.

#include <gtest/gtest.h>
#include <tests/distributed/resume_jobs.h>

namespace tessera::testing {
namespace {

class TrainEightBit : public ResumeJobs {
 protected:
  /// Three matrices of every block have 4096 elements or more, others and vectors have not; tables stay wide.
  RunConfig eight_bit(const std::string& output, const std::string& optim, const Words& more, int steps = 4) const {
    const Words words = Words{"--config_name",
                              "gpt2-tiny",
                              "--config_overrides",
                              "n_layer=2,n_embd=52,n_head=2,vocab_size=257,n_positions=16,bos_token_id=256,"
                              "eos_token_id=256,resid_pdrop=0.1,embd_pdrop=0.1,attn_pdrop=0.1",
                              "--tokenizer_name",
                              "byte",
                              "--train_file",
                              path("text.txt"),
                              "--block_size",
                              "16",
                              "--learning_rate",
                              "3e-3",
                              "--weight_decay",
                              "0.01",
                              "--per_device_train_batch_size",
                              "1",
                              "--logging_steps",
                              "1",
                              "--report_to",
                              "none",
                              "--threads_per_process",
                              "1",
                              "--max_steps",
                              concat(steps),
                              "--optim",
                              optim,
                              "--output_dir",
                              path(output)} +
                        more;
    return config::resolve_and_validate(words, [](const std::string&) { return std::nullopt; }).values;
  }

  /// The bytes of the weights.
  std::string train(int ranks, const RunConfig& config) const {
    run_ranks(
        ranks,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(config, Value::make_object()), ExitCode::done);
        },
        time_limit(60));
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

TEST_F(TrainEightBit, SameBitsUnderEveryStrategy) {
  const std::string alone = train(1, eight_bit("alone", "adamw_8bit", fixed));
  EXPECT_FALSE(alone == train(1, eight_bit("wide", "adamw", fixed))) << "eight bits change nothing";
  EXPECT_NEAR(last_loss("alone"), last_loss("wide"), 0.02);
  for (const Layout& layout : layouts)
    EXPECT_TRUE(train(layout.ranks, eight_bit(layout.name, "adamw_8bit", fixed + layout.flags)) == alone)
        << layout.name;
}

TEST_F(TrainEightBit, LionToo) {
  const std::string alone = train(1, eight_bit("alone", "paged_lion_8bit", fixed));
  EXPECT_FALSE(alone == train(1, eight_bit("wide", "lion", fixed))) << "eight bits change nothing";
  EXPECT_TRUE(train(2, eight_bit("shards", "lion_8bit", fixed + Words{"--fsdp", "full_shard auto_wrap"})) == alone);
}

TEST_F(TrainEightBit, AResumedRunMayHaveOtherProcesses) {
  const std::string alone = train(1, eight_bit("alone", "adamw_8bit", fixed));
  for (const char* form : {"sharded", "full"}) {
    const Words saves = {"--save_steps", "2", "--save_state_dict_type", form};
    train(3, eight_bit(form, "adamw_8bit", fixed + saves + Words{"--fsdp", "full_shard auto_wrap"}));
    const Words resumed = {"--resume_from_checkpoint", path(concat(form, "/checkpoint-2"))};
    EXPECT_TRUE(train(1, eight_bit("one", "adamw_8bit", fixed + resumed)) == alone) << form;
    EXPECT_TRUE(train(2, eight_bit("two", "adamw_8bit", fixed + resumed + Words{"--zero_stage", "2"})) == alone)
        << form;
    // Other optimizers of the same averages read them, too.
    EXPECT_NE(train(1, eight_bit("wide", "adamw", fixed + resumed)), "") << form;
    EXPECT_NEAR(last_loss("wide"), last_loss("alone"), 0.02) << form;
  }
}

// Parts of matrices are cut into blocks of their own, so that bits differ, but little.
TEST_F(TrainEightBit, TensorParallelIsNear) {
  const Words cut = {"--tp_size", "2", "--num_processes", "2", "--save_steps", "2"};
  train(1, eight_bit("alone", "adamw_8bit", {"--seed", "3"}));
  train(2, eight_bit("parts", "adamw_8bit", cut + Words{"--seed", "3"}));
  EXPECT_NEAR(last_loss("parts"), last_loss("alone"), 0.01);
  // Whole again: the states are those of the file, in blocks of whole matrices.
  train(1, eight_bit("whole", "adamw_8bit", {"--seed", "3", "--resume_from_checkpoint", path("parts/checkpoint-2")}));
  EXPECT_NEAR(last_loss("whole"), last_loss("alone"), 0.01);
}

}  // namespace
}  // namespace tessera::testing
