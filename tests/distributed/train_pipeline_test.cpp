// `tessera train` with pipelines: every schedule, combined with every other axis, against one process.

#include "mesh_jobs.h"

namespace tessera::testing {
namespace {

/// Four micro-batches per step, with the same rows on every mesh.
class TrainPipeline : public TrainMesh {
 protected:
  Words llama(bool tied) const {
    return {"--config_name", "llama-tiny", "--config_overrides",
            concat("num_hidden_layers=4,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
                   "intermediate_size=48,vocab_size=257,max_position_embeddings=16,tie_word_embeddings=",
                   tied ? "true" : "false")};
  }

  /// Trains as one process does with `micro_batches` micro-batches.
  void train_pipe(const std::string& output, int ranks, int copies, const Words& model, const Words& flags,
                  int micro_batches = 4) const {
    const RunConfig run =
        config(output, last_step,
               model +
                   Words{"--per_device_train_batch_size", concat(8 / copies / micro_batches),
                         "--gradient_accumulation_steps", concat(micro_batches), "--check_replicas_steps", "2"} +
                   evaluations() + flags);
    train_run(run, ranks);
  }
};

const Words unsaved = {"--save_strategy", "no"};

TEST_F(TrainPipeline, schedules_give_the_bits_of_one_process) {
  const Words model = llama(/*tied=*/false);
  train_pipe("one", 1, 1, model, unsaved);
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "zb_h2"}) {
    const std::string name = concat("pp2_", schedule);
    train_pipe(name, 2, 1, model, unsaved + Words{"--pp_size", "2", "--pipeline_schedule", schedule});
    expect_same_run(name, "one", name);
    expect_same_model(name, "one", name, "", /*exactly=*/true);
    if (HasFailure()) return;
  }
  for (const char* schedule : {"interleaved", "looped_bfs", "zbv", "dualpipev"}) {
    const std::string name = concat("pp2v2_", schedule);
    train_pipe(name, 2, 1, model,
               unsaved + Words{"--pp_size", "2", "--pipeline_schedule", schedule, "--pipeline_stages_per_rank", "2"});
    expect_same_run(name, "one", name);
    expect_same_model(name, "one", name, "", /*exactly=*/true);
    if (HasFailure()) return;
  }
  train_pipe("pp4", 4, 1, model, unsaved + Words{"--pp_size", "4"});
  expect_same_model("pp4", "one", "pp4", "", /*exactly=*/true);
  train_pipe("layout", 2, 1, model, unsaved + Words{"--pp_size", "2", "--pipeline_layout", "Et|tttL"});
  expect_same_model("layout", "one", "layout", "", /*exactly=*/true);
  train_pipe("flops", 2, 1, model, unsaved + Words{"--pp_size", "2", "--pipeline_layout", "flops"});
  expect_same_model("flops", "one", "flops", "", /*exactly=*/true);
  for (const char* layout : {"Eta|fttL", "half_blocks"}) {
    const std::string name = concat("cut_", layout == std::string("half_blocks") ? layout : "by_hand");
    train_pipe(name, 2, 1, model, unsaved + Words{"--pp_size", "2", "--pipeline_layout", layout});
    expect_same_run(name, "one", name);
    expect_same_model(name, "one", name, "", /*exactly=*/true);
  }
}

TEST_F(TrainPipeline, every_axis_beside_it) {
  const Words model = llama(/*tied=*/true);
  train_pipe("one", 1, 1, model, unsaved);
  const std::vector<Mesh> meshes = {
      {"pp2", 2, 1, {}},
      {"pp2_zbv", 2, 1, {"--pipeline_schedule", "zbv"}},
      {"dp2", 4, 2, {}},
      {"full_shard2", 4, 2, {"--fsdp", "full_shard auto_wrap"}},
      {"zero1", 4, 2, {"--zero_stage", "1", "--pipeline_schedule", "zb_h1"}},
      {"zero2", 4, 2, {"--zero_stage", "2", "--pipeline_schedule", "interleaved"}},
      {"tp2_sp", 4, 1, {"--tp_size", "2", "--sequence_parallel"}},
      {"cp2", 4, 1, {"--cp_size", "2"}},
      {"dp2_tp2", 8, 2, {"--tp_size", "2", "--fsdp", "full_shard auto_wrap"}},
      {"cut_tp2_sp",
       4,
       1,
       {"--tp_size", "2", "--sequence_parallel", "--pipeline_schedule", "zbv", "--pipeline_layout", "Et|a|fta|fL"}},
      {"cut_full_shard2",
       4,
       2,
       {"--fsdp", "full_shard auto_wrap", "--pipeline_gather", "per_batch", "--pipeline_layout", "Etta|ftL",
        "--gradient_checkpointing"}},
  };
  std::string before;
  for (const Mesh& mesh : meshes) {
    train_pipe(mesh.name, mesh.ranks, mesh.copies, model,
               mesh.flags + Words{"--pp_size", "2", "--save_steps", concat(saved_at)});
    expect_same_run(mesh.name, "one", mesh.name);
    if (!before.empty()) {
      const std::string resumed = concat(mesh.name, "_from_", before);
      train_pipe(
          resumed, mesh.ranks, mesh.copies, model,
          mesh.flags + unsaved +
              Words{"--pp_size", "2", "--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
      expect_same_model(resumed, "one", resumed);
    }
    before = mesh.name;
    if (HasFailure()) return;
  }
  train_pipe("one_again", 1, 1, model,
             unsaved + Words{"--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
  expect_same_model("one_again", "one", "one_again");
}

TEST_F(TrainPipeline, dropout_recomputation_and_fewer_micro_batches_than_stages) {
  const Words gpt2 = {"--config_name",
                      "gpt2-tiny",
                      "--config_overrides",
                      "n_layer=4,n_embd=24,n_head=4,vocab_size=257,n_positions=16,resid_pdrop=0.1,embd_pdrop=0.2,"
                      "attn_pdrop=0.1",
                      "--neftune_noise_alpha",
                      "5"};
  train_pipe("one", 1, 1, gpt2, unsaved, 2);
  train_pipe("pp4", 4, 1, gpt2,
             unsaved + Words{"--pp_size", "4", "--pipeline_schedule", "zb_h1", "--pipeline_layout", "Eta|fa|fa|fL"}, 2);
  expect_same_run("pp4", "one", "pp4");
  train_pipe("pp2", 4, 1, gpt2,
             unsaved + Words{"--pp_size", "2", "--tp_size", "2", "--sequence_parallel", "--gradient_checkpointing"}, 2);
  expect_same_run("pp2", "one", "pp2");
}

// Each rank trains the adapters of its own layers; they are saved as one PEFT folder, from which any mesh can continue.
TEST_F(TrainPipeline, adapters) {
  train_pipe("base", 1, 1, llama(/*tied=*/true), unsaved);
  const Words lora = {"--model_name_or_path", path("base"),     "--lora_r", "4",           "--lora_target_modules",
                      "all-linear",           "--lora_dropout", "0.1",      "--lora_merge"};
  train_pipe("one", 1, 1, lora, unsaved);
  const std::vector<Mesh> meshes = {
      {"pp2", 2, 1, {}},
      {"pp2_zbv", 2, 1, {"--pipeline_schedule", "zbv"}},
      {"dp2", 4, 2, {"--pipeline_schedule", "zb_h1"}},
      {"tp2", 4, 1, {"--tp_size", "2", "--sequence_parallel"}},
      {"full_shard2", 4, 2, {"--fsdp", "full_shard auto_wrap", "--pipeline_schedule", "interleaved"}},
      {"cut", 2, 1, {"--pipeline_schedule", "zbv", "--pipeline_layout", "Ea|fta|fa|fL"}},
  };
  std::string before;
  for (const Mesh& mesh : meshes) {
    train_pipe(mesh.name, mesh.ranks, mesh.copies, lora,
               mesh.flags + Words{"--pp_size", "2", "--save_steps", concat(saved_at), "--load_best_model_at_end",
                                  "--metric_for_best_model", "eval_loss"});
    if (HasFailure()) return;
    expect_same_run(mesh.name, "one", mesh.name, "adapter_model.safetensors");
    expect_same_model(mesh.name, "one", mesh.name, "merged/model.safetensors");
    for (const std::string& folder : {mesh.name, concat(mesh.name, "/checkpoint-", saved_at)})
      for (const std::string& file : list_folder(path(folder)))
        EXPECT_TRUE(!file.starts_with("adapter_model") || file == "adapter_model.safetensors")
            << folder << ": " << file;
    if (!before.empty()) {
      const std::string resumed = concat(mesh.name, "_from_", before);
      train_pipe(
          resumed, mesh.ranks, mesh.copies, lora,
          mesh.flags + unsaved +
              Words{"--pp_size", "2", "--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
      expect_same_model(resumed, "one", resumed, "adapter_model.safetensors");
    }
    before = mesh.name;
    if (HasFailure()) return;
  }
}

// A stage may have nothing to train, or a whole module; a pipeline can continue from a folder of adapters, of which
// each rank reads its own.
TEST_F(TrainPipeline, adapters_of_one_stage_go_on) {
  train_pipe("base", 1, 1, llama(/*tied=*/false), unsaved);
  const Words last = {"--model_name_or_path",  path("base"), "--lora_r", "4", "--lora_target_modules",
                      "layers.3.mlp.down_proj"};
  const Words pp2 = unsaved + Words{"--pp_size", "2"};
  train_pipe("alone", 1, 1, last, unsaved);
  train_pipe("alone2", 2, 1, last, pp2);
  expect_same_run("alone2", "alone", "alone2", "adapter_model.safetensors");
  const Words ends = last + Words{"--lora_modules_to_save", "embed_tokens,lm_head"};
  train_pipe("one", 1, 1, ends, unsaved);
  train_pipe("two", 2, 1, ends, pp2);
  if (HasFailure()) return;
  expect_same_run("two", "one", "two", "adapter_model.safetensors");
  train_pipe("one_again", 1, 1, {"--model_name_or_path", path("one")}, unsaved);
  train_pipe("two_again", 2, 1, {"--model_name_or_path", path("one")}, pp2);
  expect_same_run("two_again", "one_again", "two_again", "adapter_model.safetensors");
  train_pipe("four_again", 4, 2, {"--model_name_or_path", path("one")}, pp2 + Words{"--fsdp", "full_shard auto_wrap"});
  expect_same_run("four_again", "one_again", "four_again", "adapter_model.safetensors");
}

/// How many times rank 0 gathered parameters in a run.
double gathers_in(const std::string& metrics) {
  double calls = 0;
  std::string last;
  for (const std::string& line : split(read_file(metrics), '\n'))
    if (!line.empty()) last = line;
  const Value end = parse_json(last, metrics);
  for (const Value& row : end.at("communication").items())
    if (row.at("operation").as_string() == "all_gather" && row.at("axis").as_string().starts_with("dp"))
      calls += row.at("count").as_real();
  return calls;
}

TEST_F(TrainPipeline, stages_are_gathered_once_per_batch_or_once_per_pass) {
  const Words model = llama(/*tied=*/true), divided = {"--pp_size", "2", "--fsdp", "full_shard auto_wrap"};
  for (const char* schedule : {"1f1b", "zbv"}) {
    std::map<std::string, double> gathers;
    for (const char* when : {"per_micro_batch", "per_batch"}) {
      const std::string name = concat(schedule, "_", when);
      train_pipe(name, 4, 2, model,
                 unsaved + divided + Words{"--pipeline_schedule", schedule, "--pipeline_gather", when});
      if (HasFailure()) return;
      gathers[when] = gathers_in(path(concat(name, "/metrics.jsonl")));
    }
    expect_same_model(concat(schedule, "_per_batch"), concat(schedule, "_per_micro_batch"), schedule, "", true);
    // Each of the four micro-batches has a forward and a backward; adjacent passes may share a gather.
    EXPECT_GT(gathers["per_micro_batch"], 3 * gathers["per_batch"]) << schedule;
    EXPECT_GT(gathers["per_batch"], 0) << schedule;
  }
}

// Hidden tokens, padding, a tied decoder.
TEST_F(TrainPipeline, an_encoder) {
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nrank\nholds\ntile\nof\nthe\nmosaic\n.\n";
  for (int i = 0; i < 13; ++i) vocabulary += concat(i, "\n");
  const std::string folder = path("words");
  make_folders(folder);
  write_file_atomically(path_join(folder, "vocab.txt"), vocabulary);
  write_file_atomically(
      path_join(folder, "config.json"),
      R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 25, "hidden_size": 32,
          "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 16,
          "type_vocab_size": 2, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})");
  const Words bert = {"--config_name",    folder, "--config_overrides", "type_vocab_size=2",
                      "--tokenizer_name", folder, "--block_size",       "12"};
  train_pipe("one", 1, 1, bert, unsaved);
  for (const Mesh& mesh : {Mesh{"pp2", 2, 1, {}}, Mesh{"tp2", 4, 1, {"--tp_size", "2", "--sequence_parallel"}},
                           Mesh{"cp2", 4, 1, {"--cp_size", "2"}}}) {
    train_pipe(mesh.name, mesh.ranks, 1, bert, unsaved + mesh.flags + Words{"--pp_size", "2"});
    expect_same_run(mesh.name, "one", mesh.name);
  }
}

}  // namespace
}  // namespace tessera::testing
