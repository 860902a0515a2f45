// tessera train --deterministic_reduce with pipelines: losses, norms and weights have the bits of one process, for any
// schedule, number of stages per rank and strategy.

#include "mesh_jobs.h"

namespace tessera::testing {
namespace {

struct Family {
  const char* name;
  Words flags;
};

class PipelineFixedOrder : public TrainMesh, public ::testing::WithParamInterface<Family> {
 protected:
  /// Steps of four micro-batches of two rows each, on any mesh.
  void train_fixed(const std::string& output, int ranks, const Words& more) const {
    train_run(config(output, last_step,
                     GetParam().flags +
                         Words{"--per_device_train_batch_size", "2", "--deterministic_reduce", "--logical_shards", "4",
                               "--max_grad_norm", "0.5", "--check_replicas_steps", "2"} +
                         evaluations() + more),
              ranks);
  }
  void expect_same_bits(const std::string& output, const std::string& wanted) const {
    EXPECT_EQ(figures(output), figures(wanted)) << output;
    expect_same_model(output, wanted, output, "", /*exactly=*/true);
  }
};

const Words unsaved = {"--save_strategy", "no"}, sharded = {"--fsdp", "full_shard auto_wrap"};

TEST_P(PipelineFixedOrder, has_the_bits_of_one_process) {
  train_fixed("one", 1, unsaved);
  const std::vector<Mesh> meshes = {
      {"pp2", 2, 1, {}},
      {"zb_h1", 2, 1, {"--pipeline_schedule", "zb_h1"}},
      {"zbv", 2, 1, {"--pipeline_schedule", "zbv"}},
      {"pp4", 4, 1, {"--pp_size", "4", "--pipeline_schedule", "gpipe"}},
      {"dp2", 4, 2, {"--pipeline_schedule", "interleaved"}},
      {"zero2", 4, 2, {"--zero_stage", "2", "--pipeline_schedule", "dualpipev"}},
      {"full_shard2", 4, 2, sharded + Words{"--save_steps", concat(saved_at)}},
      {"full_shard2_zbv", 4, 2, sharded + Words{"--pipeline_schedule", "zbv", "--pipeline_gather", "per_batch"}},
  };
  for (const Mesh& mesh : meshes) {
    const bool saves = mesh.name == "full_shard2";
    train_fixed(mesh.name, mesh.ranks, Words{"--pp_size", "2"} + mesh.flags + (saves ? Words{} : unsaved));
    if (HasFailure()) return;
    expect_same_bits(mesh.name, "one");
  }
  const Words from = {"--resume_from_checkpoint", path(concat("full_shard2/checkpoint-", saved_at))};
  train_fixed("one_again", 1, unsaved + from);
  expect_same_model("one_again", "one", "one_again", "", /*exactly=*/true);
  train_fixed("three_stages", 3, unsaved + from + Words{"--pp_size", "3"});
  expect_same_model("three_stages", "one", "three_stages", "", /*exactly=*/true);
}

Family gpt2() {
  return {"gpt2",
          {"--config_name", "gpt2-tiny", "--config_overrides",
           "n_layer=4,n_embd=32,n_head=4,vocab_size=257,n_positions=16,resid_pdrop=0.1,embd_pdrop=0.1,attn_pdrop=0.1"}};
}
Family llama(bool tied) {
  return {tied ? "llama_tied" : "llama",
          {"--config_name", "llama-tiny", "--config_overrides",
           concat("num_hidden_layers=4,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
                  "intermediate_size=48,vocab_size=257,max_position_embeddings=16,tie_word_embeddings=",
                  tied ? "true" : "false")}};
}
/// The last stage also uses the embeddings, for its prediction depths.
Family predicting(bool tied) {
  Family family = llama(tied);
  family.name = tied ? "llama_mtp_tied" : "llama_mtp";
  family.flags.back() += ",mtp_num_layers=2";
  family.flags.insert(family.flags.end(), {"--mtp_loss_scaling_factor", "0.5"});
  return family;
}
INSTANTIATE_TEST_SUITE_P(Family, PipelineFixedOrder,
                         ::testing::Values(gpt2(), llama(false), llama(true), predicting(false), predicting(true)),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::testing
