// `tessera train` with a mixture of experts on several ranks, combined with every other axis, against one process.

#include "mesh_jobs.h"

namespace tessera::testing {
namespace {

class TrainExperts : public TrainMesh {
 protected:
  TrainExperts() {
    make_folders(path("mixtral"));
    write_file_atomically(path("mixtral/config.json"),
                          R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 32,
                              "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
                              "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2,
                              "vocab_size": 257, "max_position_embeddings": 16, "tie_word_embeddings": false})");
    make_folders(path("qwen"));
    write_file_atomically(path("qwen/config.json"),
                          R"({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 32,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
            "intermediate_size": 48, "moe_intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 3,
            "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1], "vocab_size": 257,
            "max_position_embeddings": 16, "tie_word_embeddings": true})");
  }
  /// One of the models; qwen has balancing losses, which are computed per micro-batch and added in backward.
  Words family(const std::string& name) const {
    const Words model = {"--config_name", path(concat(name, "/config.json")), "--config_overrides",
                         "max_position_embeddings=16"};
    return name == "mixtral" ? model
                             : model + Words{"--router_aux_loss_coef", "0.05", "--router_aux_loss_form", "micro_batch",
                                             "--router_z_loss_coef",   "0.01"};
  }
  /// Trains on eight rows per step, in micro-batches of two, as on one process.
  void train_moe(const std::string& output, int ranks, int copies, const Words& model, const Words& flags) const {
    train_run(
        config(output, last_step,
               model +
                   Words{"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", concat(4 / copies)} +
                   evaluations() + flags),
        ranks);
  }
};

const Words unsaved = {"--save_strategy", "no"};

TEST_F(TrainExperts, every_mesh_equals_one_process) {
  for (const char* name : {"mixtral", "qwen"}) {
    const Words model = family(name);
    train_moe(concat(name, "_one"), 1, 1, model, unsaved);
    const std::vector<Mesh> meshes = {
        {"ep2", 2, 2, {"--ep_size", "2"}},
        {"ep4", 4, 4, {"--ep_size", "4"}},
        {"ep2_dp2", 4, 4, {"--ep_size", "2"}},
        {"ep2_zero2", 4, 4, {"--ep_size", "2", "--zero_stage", "2"}},
        {"ep2_fsdp2", 4, 4, {"--ep_size", "2", "--fsdp", "full_shard auto_wrap"}},
        {"ep2_cp2", 2, 1, {"--ep_size", "2", "--cp_size", "2"}},
        {"ep2_pp2", 4, 2, {"--ep_size", "2", "--pp_size", "2", "--pipeline_schedule", "zb_h1"}},
        {"ep2_recompute", 2, 2, {"--ep_size", "2", "--gradient_checkpointing"}},
        {"ep2_tp2", 4, 2, {"--ep_size", "2", "--tp_size", "2"}},
        {"folded", 4, 2, {"--ep_size", "4", "--tp_size", "2", "--etp_size", "1"}},
        {"folded_sp", 4, 2, {"--ep_size", "2", "--tp_size", "2", "--etp_size", "1", "--sequence_parallel"}},
        {"ep2_cp2_hybrid",
         8,
         4,
         {"--ep_size", "2", "--cp_size", "2", "--fsdp", "hybrid_shard auto_wrap", "--shard_group_size", "2"}},
        {"ep2_pp2_fsdp2",
         8,
         4,
         {"--ep_size", "2", "--pp_size", "2", "--fsdp", "full_shard auto_wrap", "--pipeline_layout", "Eta|fttL"}},
    };
    std::string before;
    for (std::size_t i = 0; i < meshes.size(); ++i) {
      if (!whole_product() && i % 2 == (name == std::string("qwen"))) continue;  // families take turns
      const Mesh& mesh = meshes[i];
      const std::string output = concat(name, "_", mesh.name);
      train_moe(output, mesh.ranks, mesh.copies, model, mesh.flags + Words{"--save_steps", concat(saved_at)});
      expect_same_run(output, concat(name, "_one"), output);
      if (!before.empty()) {
        train_moe(
            concat(output, "_resumed"), mesh.ranks, mesh.copies, model,
            mesh.flags + unsaved + Words{"--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
        expect_same_model(concat(output, "_resumed"), concat(name, "_one"), concat(output, " from ", before));
      }
      before = output;
      if (HasFailure()) return;
    }
    train_moe(concat(name, "_again"), 1, 1, model,
              unsaved + Words{"--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
    expect_same_model(concat(name, "_again"), concat(name, "_one"), "one process after ranks of experts");
  }
}

// A folder that a mesh reads and writes without a step in between stays the same, bit by bit.
TEST_F(TrainExperts, folders_pass_through_grids_unchanged) {
  train_moe("one", 1, 1, family("qwen"), unsaved);
  for (const Mesh& mesh : {Mesh{"ep2_tp2", 4, 2, {"--ep_size", "2", "--tp_size", "2"}},
                           Mesh{"folded", 4, 2, {"--ep_size", "4", "--tp_size", "2", "--etp_size", "1"}}}) {
    train_moe(mesh.name, mesh.ranks, mesh.copies,
              {"--model_name_or_path", path("one"), "--learning_rate", "0", "--weight_decay", "0"},
              mesh.flags + unsaved);
    expect_same_model(mesh.name, "one", mesh.name, "", /*exactly=*/true);
  }
}

// Adapters work on expert meshes as on any mesh; the experts stay unchanged.
TEST_F(TrainExperts, adapters_on_grids_of_experts) {
  train_moe("base", 1, 1, family("mixtral"), unsaved);
  const Words lora = {"--model_name_or_path", path("base"), "--lora_r", "2", "--lora_merge"};
  train_moe("one", 1, 1, lora, unsaved);
  std::string before;
  for (const Mesh& mesh : {Mesh{"ep2_fsdp2", 4, 4, {"--ep_size", "2", "--fsdp", "full_shard auto_wrap"}},
                           Mesh{"folded", 4, 2, {"--ep_size", "4", "--tp_size", "2", "--etp_size", "1"}}}) {
    train_moe(mesh.name, mesh.ranks, mesh.copies, lora, mesh.flags + Words{"--save_steps", concat(saved_at)});
    expect_same_model(mesh.name, "one", mesh.name, "adapter_model.safetensors");
    expect_same_model(mesh.name, "one", mesh.name, "merged/model.safetensors");
    if (!before.empty()) {
      train_moe(
          "resumed", mesh.ranks, mesh.copies, lora,
          mesh.flags + unsaved + Words{"--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
      expect_same_model("resumed", "one", concat(mesh.name, " from ", before), "adapter_model.safetensors");
    }
    before = mesh.name;
  }
}

}  // namespace
}  // namespace tessera::testing
