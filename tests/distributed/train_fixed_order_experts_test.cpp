// tessera train --deterministic_reduce with a mixture of experts on several ranks: the bits of one process.

#include "mesh_jobs.h"

namespace tessera::testing {
namespace {

constexpr const char* deepseek = R"({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2,
    "intermediate_size": 48, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_routed_experts": 8,
    "n_shared_experts": 2, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "norm_topk_prob": true,
    "routed_scaling_factor": 1.7, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16, "v_head_dim": 16, "rope_interleave": true, "vocab_size": 257,
    "max_position_embeddings": 16, "tie_word_embeddings": false})";
/// Its head is tied to its embedding, which the first and the last stage of a pipeline both hold.
constexpr const char* qwen3 = R"({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 48, "moe_intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 3,
    "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1], "vocab_size": 257,
    "max_position_embeddings": 16, "tie_word_embeddings": true})";
/// Megatron-LM's: ungated experts, dropout.
constexpr const char* megatron = R"({"model_type": "megatron_gpt", "architectures": ["MegatronGptForCausalLM"],
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 48, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "add_bias_linear": false, "vocab_size": 257,
    "max_position_embeddings": 16})";

class TrainFixedOrderExperts : public TrainMesh {
 protected:
  /// Steps of eight micro-batches of two rows each, on any mesh, of the model given by `model`.
  void train_fixed(const std::string& output, int ranks, const Words& model, const Words& flags) const {
    train_run(config(output, last_step,
                     model +
                         Words{"--per_device_train_batch_size", "2", "--deterministic_reduce", "--logical_shards", "8",
                               "--save_steps", concat(saved_at), "--router_aux_loss_coef", "0.05",
                               "--router_aux_loss_form", "micro_batch", "--moe_capacity_factor", "1.5"} +
                         evaluations() + flags),
              ranks);
  }
  Words made_from(const char* text) const {
    write_file_atomically(path("config.json"), text);
    return {"--config_name", path("config.json"), "--config_overrides", "max_position_embeddings=16"};
  }
  /// DeepSeek's model, whose router biases are updated, too.
  void train_fixed(const std::string& output, int ranks, const Words& flags) const {
    train_fixed(output, ranks, made_from(deepseek) + Words{"--router_bias_update_rate", "0.01"}, flags);
  }
  void expect_same_bits(const std::string& output, const std::string& wanted) const {
    EXPECT_EQ(figures(output), figures(wanted)) << output;
    expect_same_model(output, wanted, output, "", /*exactly=*/true);
  }
};

TEST_F(TrainFixedOrderExperts, every_grid_has_the_bits_of_one_process) {
  train_fixed("one", 1, {});
  ASSERT_GE(figures("one").size(), 2u * last_step);
  for (const Mesh& mesh :
       {Mesh{"ep2", 2, 2, {"--ep_size", "2"}}, Mesh{"ep4", 4, 4, {"--ep_size", "4"}},
        Mesh{"ep2_dp2", 4, 4, {"--ep_size", "2"}}, Mesh{"ep2_zero2", 4, 4, {"--ep_size", "2", "--zero_stage", "2"}},
        Mesh{"ep2_fsdp2", 4, 4, {"--ep_size", "2", "--fsdp", "full_shard auto_wrap"}},
        Mesh{"ep2_recompute", 4, 4, {"--ep_size", "2", "--gradient_checkpointing"}},
        Mesh{"ep2_pp2",
             4,
             2,
             {"--ep_size", "2", "--pp_size", "2", "--pipeline_schedule", "zb_h1", "--pipeline_layout", "Ea|fttL"}}}) {
    train_fixed(mesh.name, mesh.ranks, mesh.flags);
    expect_same_bits(mesh.name, "one");
    if (HasFailure()) return;
  }
}

// With a V schedule, one rank holds the first and the last stage; otherwise two ranks each compute a part of the tied
// matrix's gradient.
TEST_F(TrainFixedOrderExperts, in_pipelines_with_tied_embeddings) {
  const Words sharded = {"--fsdp", "full_shard auto_wrap"};
  train_fixed("one", 1, made_from(qwen3), {});
  ASSERT_GE(figures("one").size(), 2u * last_step);
  for (const Mesh& mesh : {Mesh{"ep2_pp2", 4, 2, {}}, Mesh{"ep2_zbv", 4, 2, {"--pipeline_schedule", "zbv"}},
                           Mesh{"ep2_interleaved_fsdp2", 8, 4, sharded + Words{"--pipeline_schedule", "interleaved"}},
                           Mesh{"ep2_dualpipev_dp2", 8, 4, {"--pipeline_schedule", "dualpipev"}}}) {
    train_fixed(mesh.name, mesh.ranks, made_from(qwen3), Words{"--ep_size", "2", "--pp_size", "2"} + mesh.flags);
    expect_same_bits(mesh.name, "one");
    if (HasFailure()) return;
  }
}

TEST_F(TrainFixedOrderExperts, without_gates) {
  train_fixed("one", 1, made_from(megatron), {});
  train_fixed("ep2_dp2", 4, made_from(megatron), {"--ep_size", "2"});
  expect_same_bits("ep2_dp2", "one");
}

// Experts are frozen, and no gradient needs separate treatment.
TEST_F(TrainFixedOrderExperts, adapters) {
  train_fixed("base", 1, {});
  const Words model = {"--model_name_or_path", path("base"), "--lora_r", "4"};
  train_fixed("one", 1, model, {});
  train_fixed("ep2_dp2", 4, model, {"--ep_size", "2"});
  EXPECT_GE(figures("one").size(), 2u * last_step);
  EXPECT_EQ(figures("ep2_dp2"), figures("one"));
}

// --full_determinism does not require the fixed order where it is not available.
TEST_F(TrainFixedOrderExperts, full_determinism_beside_tensor_parallelism) {
  const Words flags = made_from(deepseek) + Words{"--per_device_train_batch_size", "2", "--save_strategy", "no"};
  train_run(config("one", last_step, flags + Words{"--gradient_accumulation_steps", "2"}), 1);
  train_run(config("ep2_tp2", last_step, flags + Words{"--ep_size", "2", "--tp_size", "2", "--full_determinism"}), 4);
  expect_same_run("ep2_tp2", "one", "ep2_tp2");
}

// Hybrid shards pass the sum from one shard group to the next, and from one rank of ep to the next.
TEST_F(TrainFixedOrderExperts, hybrid_shards_and_resuming_on_another_grid) {
  train_fixed("one", 1, {});
  train_fixed("hybrid", 8, {"--ep_size", "2", "--fsdp", "hybrid_shard auto_wrap", "--shard_group_size", "2"});
  expect_same_bits("hybrid", "one");
  train_fixed("resumed", 2,
              {"--ep_size", "2", "--resume_from_checkpoint", path(concat("hybrid/checkpoint-", saved_at))});
  expect_same_model("resumed", "one", "resumed", "", /*exactly=*/true);
}

// Padding changes how a product is computed, but in the same way on every mesh.
TEST_F(TrainFixedOrderExperts, padded_to_capacity) {
  train_fixed("one", 1, {"--moe_pad_expert_input_to_capacity"});
  train_fixed("ep2", 2, {"--moe_pad_expert_input_to_capacity", "--ep_size", "2"});
  expect_same_bits("ep2", "one");
}

}  // namespace
}  // namespace tessera::testing
