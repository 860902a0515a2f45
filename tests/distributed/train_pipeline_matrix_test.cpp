// Five steps of every family on every mesh with a pipeline, against one process; and all schedules of one mesh against
// each other.

#include "mesh_jobs.h"

#include <algorithm>
#include <cstdio>

namespace tessera::testing {
namespace {

constexpr int five_steps = 5;

struct Family {
  const char* name;
  Words flags;
};
Family gpt2() {
  return {"gpt2",
          {"--config_name", "gpt2-tiny", "--config_overrides",
           "n_layer=8,n_embd=32,n_head=4,vocab_size=257,n_positions=16,resid_pdrop=0.1,embd_pdrop=0.1,attn_pdrop=0.1"}};
}
Family llama(bool tied) {
  return {tied ? "llama_tied" : "llama",
          {"--config_name", "llama-tiny", "--config_overrides",
           concat("num_hidden_layers=8,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
                  "intermediate_size=48,vocab_size=257,max_position_embeddings=16,tie_word_embeddings=",
                  tied ? "true" : "false")}};
}

class PipelineMatrix : public TrainMesh, public ::testing::WithParamInterface<Family> {
 protected:
  /// Eight rows a step.
  void train_some(int steps, const std::string& output, int ranks, int copies, const Words& flags,
                  int micro_batches = 4) const {
    train_run(config(output, steps,
                     GetParam().flags +
                         Words{"--per_device_train_batch_size", concat(8 / copies / micro_batches),
                               "--gradient_accumulation_steps", concat(micro_batches), "--save_strategy", "no"} +
                         flags),
              ranks);
  }
  void train_five(const std::string& output, int ranks, int copies, const Words& flags, int micro_batches = 4) const {
    train_some(five_steps, output, ranks, copies, flags, micro_batches);
  }
  /// The largest relative difference of a loss or a norm.
  double distance(const std::string& output, const std::string& wanted, int steps = five_steps) const {
    const auto got = figures(output), expected = figures(wanted);
    EXPECT_EQ(got.size(), expected.size());
    EXPECT_GE(got.size(), 2u * static_cast<std::size_t>(steps));
    double most = 0;
    for (std::size_t i = 0; i < std::min(got.size(), expected.size()); ++i)
      most = std::max(most, std::abs(got[i] - expected[i]) / std::abs(expected[i]));
    return most;
  }
};

INSTANTIATE_TEST_SUITE_P(Family, PipelineMatrix, ::testing::Values(gpt2(), llama(false), llama(true)),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(PipelineMatrix, five_steps_on_every_mesh_are_those_of_one_process) {
  train_five("one", 1, 1, {});
  train_five("one_of_two", 1, 1, {}, 2);
  struct Cell {
    std::string name;
    int ranks, copies;
    Words flags;
    int micro_batches = 4;
  };
  const Words sharded = {"--fsdp", "full_shard auto_wrap"};
  std::vector<Cell> cells = {
      {"v2", 2, 1, {"--pipeline_schedule", "interleaved", "--pipeline_stages_per_rank", "2"}},
      {"m_below_p", 4, 1, {"--pp_size", "4", "--pipeline_schedule", "zb_h1"}, 2},
      {"tp2", 4, 1, {"--tp_size", "2"}},
      {"dp2", 4, 2, {"--pipeline_schedule", "gpipe"}},
      {"fsdp2", 4, 2, sharded},
      {"zero2", 4, 2, {"--zero_stage", "2", "--pipeline_schedule", "zbv"}},
      {"cp2", 4, 1, {"--cp_size", "2"}},
      {"dp2_tp2", 8, 2, {"--tp_size", "2", "--pipeline_schedule", "interleaved"}},
      {"fsdp2_tp2", 8, 2, sharded + Words{"--tp_size", "2", "--sequence_parallel"}},
      {"fsdp2_cp2", 8, 2, sharded + Words{"--cp_size", "2", "--pipeline_schedule", "zb_h2"}},
      {"cp2_tp2", 8, 1, {"--cp_size", "2", "--tp_size", "2", "--pipeline_schedule", "dualpipev"}},
      {"hybrid", 8, 4, {"--fsdp", "hybrid_shard auto_wrap", "--shard_group_size", "2"}, 2},
  };
  // Families take turns; TESSERA_FULL=1 runs every cell.
  const std::size_t turn = std::string(GetParam().name) == "gpt2" ? 0 : std::string(GetParam().name) == "llama" ? 1 : 2;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!whole_product() && i % 3 != turn) continue;
    const Cell& cell = cells[i];
    train_five(cell.name, cell.ranks, cell.copies, Words{"--pp_size", "2"} + cell.flags, cell.micro_batches);
    const double most = distance(cell.name, cell.micro_batches == 2 ? "one_of_two" : "one");
    std::printf("  %s %s: %.1e\n", GetParam().name, cell.name.c_str(), most);
    EXPECT_LE(most, 1e-5) << cell.name;
  }
}

// If one rank holds the first and the last stage (a V schedule), the gradients of the two uses of a tied table are
// summed separately, as on two ranks.
TEST_P(PipelineMatrix, schedules_of_one_mesh_agree_bit_by_bit) {
  const bool tied = std::string(GetParam().name) != "llama";
  struct OneMesh {
    int ranks, copies;
    Words flags;
  };
  for (const auto& [ranks, copies, flags] :
       {OneMesh{4, 1, {"--pp_size", "4"}}, OneMesh{4, 2, {"--pp_size", "2", "--fsdp", "full_shard auto_wrap"}}}) {
    if (!whole_product() && (copies == 2) != tied) continue;
    std::string first;
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "zb_h2", "interleaved", "looped_bfs", "zbv", "dualpipev"}) {
      const std::string name = concat(schedule, copies);
      train_some(last_step, name, ranks, copies, flags + Words{"--pipeline_schedule", schedule});
      if (first.empty()) first = name;
      EXPECT_EQ(distance(name, first, last_step), 0) << name;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
