// The state of gradient compression is saved in checkpoints: a resumed run has the bits of one that was never stopped.
// If the state cannot be resumed, compression starts from its initial state.

#include "resume_jobs.h"

#include <algorithm>

namespace tessera::testing {
namespace {

class ResumeCompression : public ResumeJobs {
 protected:
  static constexpr int saved_at = 3, last_step = 7;

  void run(const std::string& output, int ranks, const Words& more) {
    train_on(ranks, config(output, last_step, Words{"--save_steps", concat(saved_at)} + more));
  }
  std::string after_the_save(const std::string& output) const {
    const std::string all = numbers(output);
    return all.substr(std::min(all.size(), all.find(concat("step=", saved_at + 1, " "))));
  }
  std::string model(const std::string& output) const {
    std::string bytes;
    for (const std::string& name : list_folder(path(output)))
      if (name.ends_with(".safetensors")) bytes += name + read_file(path(concat(output, "/", name)));
    return bytes;
  }
  /// The files of this state in the checkpoint.
  int files(const std::string& output) const {
    int count = 0;
    for (const std::string& name : list_folder(path(concat(output, "/checkpoint-", saved_at))))
      count += name.find("-compression-") != std::string::npos ? 1 : 0;
    return count;
  }
  void expect_equal_when_resumed(int ranks, const Words& flags) {
    SCOPED_TRACE(join(flags, " "));
    run("through", ranks, flags);
    EXPECT_EQ(files("through"), ranks);
    run("resumed", ranks, flags + Words{"--resume_from_checkpoint", path(concat("through/checkpoint-", saved_at))});
    ASSERT_NE(numbers("through").find(concat("step=", last_step)), std::string::npos);
    EXPECT_EQ(numbers("resumed"), after_the_save("through"));
    EXPECT_TRUE(model("resumed") == model("through"));
    for (const char* output : {"through", "resumed"}) remove_tree(path(output));
  }
};

TEST_F(ResumeCompression, TopKGoesOnBitForBit) {
  const Words topk = {"--grad_compression", "topk:ratio=0.05"};
  expect_equal_when_resumed(2, topk);
  expect_equal_when_resumed(2, topk + Words{"--zero_stage", "2"});
  expect_equal_when_resumed(2, topk + Words{"--fsdp", "full_shard auto_wrap", "--gradient_accumulation_steps", "2"});
}

TEST_F(ResumeCompression, OneBitGoesOnBitForBit) {
  const Words onebit = {"--grad_compression", "onebit:warmup=2"};
  expect_equal_when_resumed(2, onebit);
  expect_equal_when_resumed(2, onebit + Words{"--fsdp", "full_shard auto_wrap"});
  expect_equal_when_resumed(2, {"--grad_compression", "onebit:warmup=5"});  // the warm-up ends after the resume
}

TEST_F(ResumeCompression, PowerSgdGoesOnBitForBit) {
  const Words powersgd = {"--grad_compression", "powersgd:rank=2,start=2,min_rate=1"};
  expect_equal_when_resumed(2, powersgd + Words{"--gradient_accumulation_steps", "2"});
  expect_equal_when_resumed(3, powersgd + Words{"--zero_stage", "1", "--save_state_dict_type", "full"});
}

/// Error feedback belongs to a rank; only the step count carries over to a different number of ranks.
TEST_F(ResumeCompression, AnotherNumberOfRanksBeginsAnew) {
  const Words onebit = {"--grad_compression", "onebit:warmup=2"};
  run("two", 2, onebit);
  const Words resume = {"--resume_from_checkpoint", path(concat("two/checkpoint-", saved_at))};
  run("three", 3, onebit + resume);
  EXPECT_NE(after_the_save("three").find(concat("step=", last_step)), std::string::npos);
  run("one", 1, onebit + resume);
  EXPECT_NE(after_the_save("one").find(concat("step=", last_step)), std::string::npos);
  run("sharded", 2, onebit + resume + Words{"--zero_stage", "2"});
  EXPECT_NE(after_the_save("sharded").find(concat("step=", last_step)), std::string::npos);
}

/// A checkpoint from before this state was saved, or from a run without compression.
TEST_F(ResumeCompression, ACheckpointWithoutStateIsResumed) {
  run("plain", 2, {});
  EXPECT_EQ(files("plain"), 0);
  run("resumed", 2,
      {"--grad_compression", "topk:ratio=0.05", "--resume_from_checkpoint",
       path(concat("plain/checkpoint-", saved_at))});
  EXPECT_NE(after_the_save("resumed").find(concat("step=", last_step)), std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
