// Ten steps of every MoE family on every expert mesh, without and with a capacity limit, against one process.

#include "mesh_jobs.h"

#include <algorithm>
#include <cstdio>

namespace tessera::testing {
namespace {

constexpr int ten_steps = 10;

/// config.json of four layers.
struct Family {
  const char* name;
  const char* config;
};
constexpr Family mixtral{"mixtral", R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"],
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 257,
    "max_position_embeddings": 16, "tie_word_embeddings": false})"};
constexpr Family qwen3{"qwen3", R"({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 48, "moe_intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 3,
    "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [1], "vocab_size": 257,
    "max_position_embeddings": 16, "tie_word_embeddings": true})"};
constexpr Family deepseek{"deepseek", R"({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 40, "moe_intermediate_size": 12, "first_k_dense_replace": 1, "n_routed_experts": 8,
    "n_shared_experts": 2, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "norm_topk_prob": true,
    "routed_scaling_factor": 1.7, "q_lora_rank": 20, "kv_lora_rank": 24, "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "rope_interleave": true, "vocab_size": 257,
    "max_position_embeddings": 16, "tie_word_embeddings": false})"};

/// Megatron-LM's: ungated experts, balanced by Sinkhorn's method.
constexpr Family megatron{"megatron", R"({"model_type": "megatron_gpt", "architectures": ["MegatronGptForCausalLM"],
    "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 40, "num_experts": 8,
    "num_experts_per_tok": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 12,
    "shared_expert_gate": true, "router_scoring": "sigmoid", "router_balancing": "sinkhorn", "mlp_only_layers": [1],
    "add_bias_linear": false, "hidden_dropout": 0.0, "attention_dropout": 0.0, "vocab_size": 257,
    "max_position_embeddings": 16})"};

struct Cell {
  std::string name;
  int ranks, copies;
  Words flags;
};

class ExpertMatrix : public TrainMesh, public ::testing::WithParamInterface<std::tuple<Family, bool>> {
 protected:
  /// Eight rows a step, in micro-batches of two, as on one process: an expert's capacity is a fraction of the
  /// micro-batch.
  void train_ten(const std::string& output, int ranks, int copies, const Words& flags) const {
    const auto& [family, limited] = GetParam();
    const std::string folder = path(family.name);
    make_folders(folder);
    write_file_atomically(path_join(folder, "config.json"), family.config);
    const Words capacity = limited ? Words{"--moe_capacity_factor", "0.8"} : Words{};
    train_run(config(output, ten_steps,
                     Words{"--config_name", path_join(folder, "config.json"), "--config_overrides",
                           "max_position_embeddings=16", "--per_device_train_batch_size", "2",
                           "--gradient_accumulation_steps", concat(4 / copies), "--save_strategy", "no",
                           "--router_aux_loss_coef", "0.05", "--router_aux_loss_form", "micro_batch"} +
                         capacity + flags),
              ranks);
  }
  /// The routers' results, step by step: loads of experts and dropped slots.
  std::vector<double> router_figures(const std::string& output) const {
    std::vector<double> all;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      if (const Value* load = value.find("expert_load"))
        for (const Value& share : load->items()) all.push_back(share.as_real());
      if (const Value* dropped = value.find("expert_slots_dropped")) all.push_back(dropped->as_real());
    }
    return all;
  }
  static double distance(const std::vector<double>& got, const std::vector<double>& expected) {
    EXPECT_EQ(got.size(), expected.size());
    double most = 0;
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i)
      if (got[i] != expected[i]) most = std::max(most, std::abs(got[i] - expected[i]) / std::abs(expected[i]));
    return most;
  }
};

INSTANTIATE_TEST_SUITE_P(Family, ExpertMatrix,
                         ::testing::Combine(::testing::Values(mixtral, qwen3, deepseek, megatron), ::testing::Bool()),
                         [](const auto& info) {
                           return concat(std::get<0>(info.param).name,
                                         std::get<1>(info.param) ? "_with_capacity" : "_dropless");
                         });

TEST_P(ExpertMatrix, ten_steps_on_every_grid_are_those_of_one_process) {
  const auto& [family, limited] = GetParam();
  train_ten("one", 1, 1, {});
  const std::vector<double> wanted = figures("one"), routers = router_figures("one");
  EXPECT_GE(wanted.size(), 2u * ten_steps);
  if (limited) {
    EXPECT_GT(routers.back(), 0) << "nothing was dropped";
  }
  const Words sharded = {"--fsdp", "full_shard auto_wrap"};
  const std::vector<Cell> cells = {
      {"ep2", 2, 2, {"--ep_size", "2"}},
      {"ep2_tp2", 4, 2, {"--ep_size", "2", "--tp_size", "2"}},
      {"folded", 4, 2, {"--ep_size", "4", "--tp_size", "2", "--etp_size", "1", "--sequence_parallel"}},
      {"ep2_fsdp2", 4, 4, sharded + Words{"--ep_size", "2"}},
      {"ep2_pp2", 4, 2, {"--ep_size", "2", "--pp_size", "2", "--pipeline_schedule", "zb_h1"}},
      {"ep2_cp2", 2, 1, {"--ep_size", "2", "--cp_size", "2"}},
      {"ep4", 4, 4, {"--ep_size", "4"}},
      {"ep2_tp2_sp", 4, 2, {"--ep_size", "2", "--tp_size", "2", "--sequence_parallel"}},
      {"tp2", 2, 1, {"--tp_size", "2"}},
      {"tp2_sp", 2, 1, {"--tp_size", "2", "--sequence_parallel"}},
      {"folded_fsdp2", 8, 4, sharded + Words{"--ep_size", "4", "--tp_size", "2", "--etp_size", "1"}},
      {"folded_pp2", 8, 2, {"--ep_size", "4", "--tp_size", "2", "--etp_size", "1", "--pp_size", "2"}},
  };
  // The families of transformers alternate; Megatron's takes the cells that divide rows. TESSERA_FULL=1 runs every
  // cell.
  const std::string name = family.name;
  const std::size_t turn = name == "megatron" ? (limited ? 2 : 5)
                                              : 2 * (name == "mixtral" ? 0
                                                     : name == "qwen3" ? 1
                                                                       : 2) +
                                                    (limited ? 1 : 0);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!whole_product() && i % 6 != turn) continue;
    const Cell& cell = cells[i];
    // The second half pads with rows of zeros up to the capacity, which must not change anything.
    const Words padded = limited && i >= 6 ? Words{"--moe_pad_expert_input_to_capacity"} : Words{};
    train_ten(cell.name, cell.ranks, cell.copies, cell.flags + padded);
    const double most = distance(figures(cell.name), wanted);
    std::printf("  %s%s %s: %.1e\n", family.name, limited ? " with capacity" : "", cell.name.c_str(), most);
    EXPECT_LE(most, 1e-5) << cell.name;
    EXPECT_EQ(distance(router_figures(cell.name), routers), 0) << cell.name << ": routers";
  }
}

}  // namespace
}  // namespace tessera::testing
