// Multi-token prediction in whole runs: every layout trains the model of one process, a resumed run equals the
// uninterrupted one, and the prediction depths learn.

#include "mesh_jobs.h"

#include <cmath>

namespace tessera::testing {
namespace {

class TrainPredictions : public TrainMesh {
 protected:
  static Words model(const std::string& more = "") {
    return {
        "--config_name", "llama-tiny", "--config_overrides",
        "mtp_num_layers=1,num_hidden_layers=1,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
        "intermediate_size=48,vocab_size=257,max_position_embeddings=16" +
            more};
  }
  void train_on_mesh(const Mesh& mesh, const Words& more = {}) const {
    train_on(mesh.name, mesh, model() + Words{"--mtp_loss_scaling_factor", "0.5"} + more);
  }
  std::vector<double> of_depth(const std::string& output, const std::string& name = "mtp_1_loss") const {
    std::vector<double> all;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      if (const Value* number = value.find(name)) all.push_back(number->as_real());
    }
    return all;
  }
  void expect_same_depths(const std::string& output, const std::string& wanted, int depths) const {
    for (int k = 1; k <= depths; ++k) {
      const std::string name = concat("mtp_", k, "_loss");
      const std::vector<double> got = of_depth(output, name), right = of_depth(wanted, name);
      ASSERT_EQ(right.size(), static_cast<std::size_t>(last_step)) << wanted << " " << name;
      ASSERT_EQ(got.size(), right.size()) << output << " " << name;
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], right[i], 2e-5 * right[i]) << output << " " << name;
    }
  }

  /// Four blocks and two depths; four micro-batches per step, with the same rows on every mesh.
  static Words deep(bool tied) {
    return {"--config_name", "llama-tiny", "--config_overrides",
            concat("mtp_num_layers=2,num_hidden_layers=4,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,"
                   "head_dim=8,intermediate_size=48,vocab_size=257,max_position_embeddings=16,tie_word_embeddings=",
                   tied ? "true" : "false")};
  }
  void train_pipe(const std::string& output, int ranks, int copies, const Words& flags) const {
    train_run(config(output, last_step,
                     flags + evaluations() +
                         Words{"--per_device_train_batch_size", concat(2 / copies), "--gradient_accumulation_steps",
                               "4", "--check_replicas_steps", "2"}),
              ranks);
  }
};

const Words unsaved = {"--save_strategy", "no"};

TEST_F(TrainPredictions, EveryMeshTrainsTheModelOfOneProcess) {
  train_on_mesh(one);
  const std::vector<double> wanted = of_depth("one");
  ASSERT_EQ(wanted.size(), static_cast<std::size_t>(last_step));
  EXPECT_NEAR(wanted.front(), std::log(257.0), 0.5);
  EXPECT_LT(wanted.back(), wanted.front());
  for (const Mesh& mesh :
       {Mesh{"ddp", 2, 2, {}}, Mesh{"full_shard", 2, 2, {"--fsdp", "full_shard auto_wrap", "--gradient_checkpointing"}},
        Mesh{"tp_sp", 2, 1, {"--tp_size", "2", "--sequence_parallel"}}}) {
    train_on_mesh(mesh);
    expect_same_run(mesh.name, "one", mesh.name);
    expect_same_depths(mesh.name, "one", 1);
  }
}

// The last stage holds the depths and its own copy of the embeddings, whose gradients are added to the first stage's.
TEST_F(TrainPredictions, EveryScheduleTrainsTheModelOfOneProcess) {
  for (const bool tied : {false, true}) {
    const std::string kind = tied ? "tied_" : "untied_", alone = kind + "one";
    const Words model = deep(tied) + Words{"--mtp_loss_scaling_factor", "0.5"} + unsaved;
    train_pipe(alone, 1, 1, model);
    train_pipe(kind + "without", 1, 1, deep(tied) + unsaved + Words{"--mtp_loss_scaling_factor", "0"});
    const std::vector<double> with = figures(alone), without = figures(kind + "without");
    ASSERT_EQ(with.size(), without.size());
    double apart = 0;
    for (std::size_t i = 0; i < with.size(); ++i) apart = std::max(apart, std::abs(with[i] - without[i]));
    EXPECT_GT(apart, 1e-3) << "the depths act";
    for (const char* schedule : {"1f1b", "gpipe", "zb_h1", "zb_h2", "interleaved", "looped_bfs", "zbv", "dualpipev"}) {
      const std::string name = kind + schedule;
      train_pipe(name, 2, 1, model + Words{"--pp_size", "2", "--pipeline_schedule", schedule});
      if (HasFailure()) return;
      expect_same_run(name, alone, name);
      expect_same_depths(name, alone, 2);
    }
    train_pipe(kind + "pp4", 4, 1, model + Words{"--pp_size", "4", "--pipeline_schedule", tied ? "zb_h1" : "1f1b"});
    if (HasFailure()) return;
    expect_same_run(kind + "pp4", alone, kind + "pp4");
    expect_same_depths(kind + "pp4", alone, 2);
    if (tied) continue;
    for (const char* layout : {"Et|tttmmL", "Ett|t|t|mmL", "flops", "half_blocks"}) {
      const std::string name = concat("cut_", layout[0] == 'E' ? concat(std::string(layout).size()) : layout);
      const bool four = std::string_view(layout) == "Ett|t|t|mmL";
      train_pipe(name, 2, 1,
                 model + Words{"--pp_size", "2", "--pipeline_layout", layout} +
                     (four ? Words{"--pipeline_schedule", "zbv"} : Words{}));
      if (HasFailure()) return;
      expect_same_run(name, alone, name);
      expect_same_depths(name, alone, 2);
    }
  }
}

// With every other axis; each run resumes from the checkpoint of the previous one, on a different mesh.
TEST_F(TrainPredictions, PipelinesGoWithEveryOtherAxis) {
  const Words model = deep(/*tied=*/false) + Words{"--mtp_loss_scaling_factor", "0.5"};
  train_pipe("one", 1, 1, model + Words{"--save_steps", concat(saved_at)});
  const std::vector<Mesh> meshes = {
      {"ddp2", 4, 2, {"--auto_find_batch_size"}},
      {"zero1", 4, 2, {"--zero_stage", "1", "--pipeline_schedule", "zb_h1"}},
      {"zero2", 4, 2, {"--zero_stage", "2", "--pipeline_schedule", "interleaved"}},
      {"full_shard2",
       4,
       2,
       {"--fsdp", "full_shard auto_wrap", "--gradient_checkpointing", "--pipeline_gather", "per_batch"}},
      {"full_shard2_zbv", 4, 2, {"--fsdp", "full_shard auto_wrap", "--pipeline_schedule", "zbv"}},
      {"tp2", 4, 1, {"--tp_size", "2"}},
      {"tp2_sp_zbv", 4, 1, {"--tp_size", "2", "--sequence_parallel", "--pipeline_schedule", "zbv"}},
  };
  std::string before = "one";
  for (const Mesh& mesh : meshes) {
    const Words flags = model + mesh.flags + Words{"--pp_size", "2", "--save_steps", concat(saved_at)};
    train_pipe(mesh.name, mesh.ranks, mesh.copies, flags);
    if (HasFailure()) return;
    expect_same_run(mesh.name, "one", mesh.name);
    expect_same_depths(mesh.name, "one", 2);
    const std::string resumed = concat(mesh.name, "_from_", before);
    train_pipe(resumed, mesh.ranks, mesh.copies,
               flags + unsaved + Words{"--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
    if (HasFailure()) return;
    expect_same_model(resumed, "one", resumed);
    before = mesh.name;
  }
  train_pipe("one_again", 1, 1,
             model + unsaved + Words{"--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
  expect_same_model("one_again", "one", "one_again");
  train_pipe("pp4_again", 4, 1,
             model + unsaved +
                 Words{"--pp_size", "4", "--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
  expect_same_model("pp4_again", "one", "pp4_again");
}

// Depths that are not computed stay unchanged, and the last stage has no embeddings for them.
TEST_F(TrainPredictions, PipelinesLeaveDepthsAloneWithoutWeight) {
  const Words model = deep(/*tied=*/false) + unsaved + Words{"--mtp_loss_scaling_factor", "0", "--weight_decay", "0.1"};
  train_pipe("one", 1, 1, model);
  for (const char* schedule : {"1f1b", "zbv"}) {
    train_pipe(schedule, 2, 1, model + Words{"--pp_size", "2", "--pipeline_schedule", schedule});
    EXPECT_TRUE(of_depth(schedule).empty());
    expect_same_run(schedule, "one", schedule);
    expect_same_model(schedule, "one", schedule, "", /*exactly=*/true);
  }
}

TEST_F(TrainPredictions, AdaptersOfDepthsTrainInPipelines) {
  train_pipe("base", 1, 1, deep(/*tied=*/true) + unsaved);
  const Words lora = {"--model_name_or_path", path("base"), "--lora_r", "4", "--lora_target_modules", "all-linear"};
  train_pipe("one", 1, 1, lora + unsaved);
  for (const char* schedule : {"1f1b", "zbv"}) {
    train_pipe(schedule, 2, 1, lora + unsaved + Words{"--pp_size", "2", "--pipeline_schedule", schedule});
    if (HasFailure()) return;
    expect_same_run(schedule, "one", schedule, "adapter_model.safetensors");
    expect_same_depths(schedule, "one", 2);
  }
}

TEST_F(TrainPredictions, ExpertsOfDepthsLieOnSeveralRanks) {
  write_file_atomically(path("mixtral.json"),
                        R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 32,
                            "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
                            "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2,
                            "vocab_size": 257, "max_position_embeddings": 16, "tie_word_embeddings": false,
                            "mtp_num_layers": 1})");
  const Words mixtral = {"--config_name",        path("mixtral.json"),
                         "--config_overrides",   "max_position_embeddings=16",
                         "--router_z_loss_coef", "0.01"};
  // The same number of rows per micro-batch, because the routers' loss is a mean over it.
  train_on("alone", one, mixtral + Words{"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"});
  train_on("ep", {"ep", 2, 2, {"--ep_size", "2"}}, mixtral);
  expect_same_run("ep", "alone", "ep");
  expect_same_depths("ep", "alone", 1);
  train_on("ep_pp",
           {"ep_pp",
            4,
            2,
            {"--ep_size", "2", "--pp_size", "2", "--per_device_train_batch_size", "1", "--gradient_accumulation_steps",
             "2"}},
           mixtral);
  train_on("alone_of_one_row", one,
           mixtral + Words{"--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "4"});
  expect_same_run("ep_pp", "alone_of_one_row", "ep_pp");
  expect_same_depths("ep_pp", "alone_of_one_row", 1);
}

TEST_F(TrainPredictions, AResumedRunIsTheUninterruptedOne) {
  train_on_mesh(one, {"--save_steps", concat(saved_at)});
  const Mesh resumed{"resumed", 2, 2, {"--zero_stage", "2"}};
  train_on_mesh(resumed, {"--resume_from_checkpoint", path(concat("one/checkpoint-", saved_at))});
  expect_same_model("resumed", "one", "resumed");
}

TEST_F(TrainPredictions, WithoutWeightTheDepthsStayAsTheyWere) {
  train_on("without", one, model() + Words{"--mtp_loss_scaling_factor", "0", "--weight_decay", "0.1"});
  EXPECT_TRUE(of_depth("without").empty());
  const Words plain = {model()[0], model()[1], model()[2], model()[3].substr(std::string("mtp_num_layers=1,").size())};
  train_on("plain", one, plain + Words{"--weight_decay", "0.1"});
  const format::SafetensorsFolder a(path("without")), b(path("plain"));
  EXPECT_GT(a.tensors().size(), b.tensors().size()) << "the depths are kept";
  for (const auto& stored : b.tensors()) {
    const auto* own = a.find(stored.info.name);
    ASSERT_NE(own, nullptr) << stored.info.name;
    EXPECT_TRUE(at::equal(checkpoint::read_tensor(a.files()[own->file], own->info),
                          checkpoint::read_tensor(b.files()[stored.file], stored.info)))
        << stored.info.name;
  }
}

}  // namespace
}  // namespace tessera::testing
