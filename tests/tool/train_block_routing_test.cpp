// --progressive_layer_drop and --data_efficiency in whole runs: they take effect, identically on any number of
// processes, and a resumed run equals the uninterrupted one.

#include "program.h"

namespace tessera::testing {
namespace {

class TrainBlockRoutingTest : public ToolTest {
 protected:
  void run(const std::string& output, const Strings& more) const {
    const auto done = tessera(training(output, more));
    ASSERT_EQ(done.exit_code, 0) << done.err;
  }
  std::string model(const std::string& output) const { return read_file(at(output + "/model.safetensors")); }

  /// Checks that the setting takes effect at some step and gives the same result for every layout of the run.
  void is_the_same_everywhere(const Strings& given) const {
    const Strings asked = given + Strings{"--deterministic_reduce", "--logical_shards", "4"};
    run("plain", Strings{"--deterministic_reduce", "--logical_shards", "4"} + batch(3, 4, 6));
    run("alone", asked + batch(3, 4, 6));
    EXPECT_NE(curve("alone"), curve("plain")) << "it acts";
    const Strings two = asked + Strings{"--num_processes", "2"} + batch(3, 2, 6);
    run("ddp", two);
    run("full_shard", two + Strings{"--strategy", "full_shard", "--save_steps", "3"});
    run("checkpointed", two + Strings{"--strategy", "full_shard", "--gradient_checkpointing"});
    run("resumed", two + Strings{"--resume_from_checkpoint", at("full_shard/checkpoint-3")});
    for (const char* name : {"ddp", "full_shard", "checkpointed", "resumed"})
      EXPECT_TRUE(model(name) == model("alone")) << name << ": bit by bit";
  }
};

TEST_F(TrainBlockRoutingTest, DroppedLayers) {
  is_the_same_everywhere({"--progressive_layer_drop", R"({"enabled": true, "theta": 0.2, "gamma": 5})"});
}

TEST_F(TrainBlockRoutingTest, DroppedTokens) {
  is_the_same_everywhere({"--data_efficiency", R"({"enabled": true, "data_routing": {"enabled": true, "random_ltd": {
      "enabled": true, "total_layer_num": 2, "random_ltd_layer_num": 1, "random_ltd_layer_id": [1],
      "model_mask_name": "attention_mask", "model_type": "decoder", "hidden_state_order": "batch_seq_dim",
      "random_ltd_schedule": {"min_value": 8, "max_value": 32, "schedule_type": "fixed_linear",
      "schedule_config": {"require_steps": 5, "seq_per_step": 8}}}}})"});
}

}  // namespace
}  // namespace tessera::testing
