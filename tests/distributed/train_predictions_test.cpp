// Multi-token prediction in whole runs: every way to divide the work trains the model of one process, a resumed run is
// the uninterrupted one, and the depths learn.

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
  std::vector<double> of_depth(const std::string& output) const {
    std::vector<double> all;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      if (const Value* number = value.find("mtp_1_loss")) all.push_back(number->as_real());
    }
    return all;
  }
};

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
    const std::vector<double> got = of_depth(mesh.name);
    ASSERT_EQ(got.size(), wanted.size()) << mesh.name;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-5 * wanted[i]) << mesh.name;
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
  // As many rows in a micro-batch, whose routers' loss is a mean over it.
  train_on("alone", one, mixtral + Words{"--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"});
  train_on("ep", {"ep", 2, 2, {"--ep_size", "2"}}, mixtral);
  expect_same_run("ep", "alone", "ep");
  const auto wanted = of_depth("alone"), got = of_depth("ep");
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-5 * wanted[i]);
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
