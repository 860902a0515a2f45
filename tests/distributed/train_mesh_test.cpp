// `tessera train` on meshes of tp, sp, cp and every strategy: the run equals that of one process, and a checkpoint
// saved on one mesh loads on another.

#include "mesh_jobs.h"

#include <map>

namespace tessera::testing {
namespace {

TEST_F(TrainMesh, every_mesh_trains_as_one_process_and_loads_what_another_has_saved) {
  const std::vector<Mesh> meshes = {
      {"tp2", 2, 1, {"--tp_size", "2", "--tp_comm_overlap"}},
      {"tp2_sp_full_shard2", 4, 2, {"--tp_size", "2", "--sequence_parallel", "--fsdp", "full_shard auto_wrap"}},
      {"tp2_cp2_sp", 4, 1, {"--tp_size", "2", "--cp_size", "2", "--sequence_parallel", "--tp_comm_overlap"}},
      {"cp2_zero2", 4, 2, {"--cp_size", "2", "--cp_comm_type", "a2a", "--zero_stage", "2"}},
      {"tp4", 4, 1, {"--tp_size", "4"}},
      {"tp2_hybrid", 4, 2, {"--tp_size", "2", "--fsdp", "hybrid_shard auto_wrap", "--shard_group_size", "2"}},
  };
  train_on("one", one, {"--save_strategy", "no"});
  std::string before;
  for (const Mesh& mesh : meshes) {
    train_on(mesh.name, mesh, {"--save_steps", concat(saved_at)});
    expect_same_run(mesh.name, "one", mesh.name);
    if (!before.empty()) {
      const std::string resumed = mesh.name + "_from_" + before;
      train_on(resumed, mesh,
               {"--save_strategy", "no", "--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
      expect_same_model(resumed, "one", resumed);
    }
    before = mesh.name;
    if (::testing::Test::HasFailure()) return;
  }
  train_on("one_again", one,
           {"--save_strategy", "no", "--resume_from_checkpoint", path(concat(before, "/checkpoint-", saved_at))});
  expect_same_model("one_again", "one", "one_again");
}

TEST_F(TrainMesh, whole_checkpoints_packed_projections_and_dropout) {
  const Words gpt2 = {"--config_name",
                      "gpt2-tiny",
                      "--config_overrides",
                      "n_layer=2,n_embd=24,n_head=4,vocab_size=257,n_positions=16,resid_pdrop=0.1,embd_pdrop=0.2,"
                      "attn_pdrop=0.1",
                      "--neftune_noise_alpha",
                      "5",
                      "--optim",
                      "sgd"};
  train_on("one", one, gpt2 + Words{"--save_strategy", "no"});
  const Mesh tp2{"tp2", 2, 1, {"--tp_size", "2"}},
      both{"both", 4, 2, {"--tp_size", "2", "--fsdp", "full_shard auto_wrap"}};
  train_on("sharded", both, gpt2 + Words{"--save_steps", concat(saved_at)});
  train_on("full", both, gpt2 + Words{"--save_steps", concat(saved_at), "--save_state_dict_type", "full"});
  train_on("cp2", {"cp2", 2, 1, {"--cp_size", "2"}}, gpt2 + Words{"--save_strategy", "no"});
  expect_same_run("cp2", "one", "cp2");
  expect_same_run("sharded", "one", "sharded");
  expect_same_run("full", "one", "full");
  for (const char* from : {"sharded", "full"}) {
    const std::string name = concat("from_", from);
    train_on(name, tp2,
             gpt2 + Words{"--save_strategy", "no", "--resume_from_checkpoint",
                          path(concat(from, "/checkpoint-", saved_at))});
    expect_same_model(name, "one", name);
  }
}

// Kinds of attention that only Megatron's GPT has: latent, and gated linear.
TEST_F(TrainMesh, latent_and_linear_attention_of_megatron) {
  const std::string sizes =
      R"({"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8,
          "intermediate_size": 48, "vocab_size": 257, "max_position_embeddings": 16, "norm_epsilon": 1e-5, )";
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"latent", R"("q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
                    "v_head_dim": 6})"},
      {"linear", R"("layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
                    "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 8,
                    "linear_conv_kernel_dim": 3, "attn_output_gate": true, "layernorm_zero_centered_gamma": true,
                    "add_bias_linear": false, "add_qkv_bias": false})"}};
  for (const auto& [kind, members] : kinds) {
    const Words model = {"--config_name", "megatron-gpt-tiny", "--config_overrides",
                         sizes + members, "--save_strategy",   "no"};
    train_on(kind + "_one", one, model);
    for (const Mesh& mesh : {Mesh{"tp2_sp", 2, 1, {"--tp_size", "2", "--sequence_parallel"}},
                             Mesh{"pp2_tp2", 4, 1, {"--tp_size", "2", "--pp_size", "2"}}}) {
      const std::string name = concat(kind, "_", mesh.name);
      train_on(name, mesh, model);
      expect_same_run(name, kind + "_one", name);
    }
  }
}

// Adapters are sharded like the layers they adapt and are saved whole, as is the head trained with them; the merged
// models are equal.
TEST_F(TrainMesh, adapters) {
  train_on("base", one,
           {"--save_strategy", "no", "--config_overrides",
            "num_hidden_layers=2,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
            "intermediate_size=48,vocab_size=257,max_position_embeddings=16,tie_word_embeddings=false"});
  const Words lora = {"--model_name_or_path",   path("base"), "--lora_r",       "4",
                      "--lora_target_modules",  "all-linear", "--lora_dropout", "0.1",
                      "--lora_modules_to_save", "lm_head",    "--lora_merge"};
  train_on("one", one, lora + Words{"--save_strategy", "no"});
  const std::vector<Mesh> meshes = {
      {"tp2", 2, 1, {"--tp_size", "2"}},
      {"tp4_sp", 4, 1, {"--tp_size", "4", "--sequence_parallel"}},
      {"both", 4, 2, {"--tp_size", "2", "--sequence_parallel", "--fsdp", "full_shard auto_wrap"}}};
  std::string before;
  for (const Mesh& mesh : meshes) {
    train_on(mesh.name, mesh, lora + Words{"--save_steps", concat(saved_at)});
    expect_same_model(mesh.name, "one", mesh.name, "adapter_model.safetensors");
    expect_same_model(mesh.name, "one", mesh.name, "merged/model.safetensors");
    if (!before.empty()) {
      const std::string resumed = concat(mesh.name, "_from_", before);
      train_on(resumed, mesh,
               lora + Words{"--save_strategy", "no", "--resume_from_checkpoint",
                            path(concat(before, "/checkpoint-", saved_at))});
      expect_same_model(resumed, "one", resumed, "adapter_model.safetensors");
    }
    before = mesh.name;
    if (::testing::Test::HasFailure()) return;
  }
}

// A folder that every mesh reads and writes without a step in between stays the same, byte by byte.
TEST_F(TrainMesh, folders_pass_through_meshes_unchanged) {
  train_on("one", one, {"--save_strategy", "no"});
  const std::string weights = read_file(path("one/model.safetensors"));
  for (const Mesh& mesh : {Mesh{"tp4_sp", 4, 1, {"--tp_size", "4", "--sequence_parallel"}},
                           Mesh{"both", 4, 2, {"--tp_size", "2", "--fsdp", "full_shard auto_wrap"}},
                           Mesh{"cp2_tp2", 4, 1, {"--cp_size", "2", "--tp_size", "2"}}}) {
    train_on(
        mesh.name, mesh,
        {"--model_name_or_path", path("one"), "--learning_rate", "0", "--weight_decay", "0", "--save_strategy", "no"});
    EXPECT_EQ(read_file(path(mesh.name + "/model.safetensors")), weights) << mesh.name;
  }
}

// Rows of any length are padded to a multiple of the ranks, which must not change anything.
TEST_F(TrainMesh, rows_of_examples) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += concat("{\"prompt\": \"", std::string(static_cast<std::size_t>(1 + i % 5), 'a'), "\", \"completion\": \"",
                    std::string(static_cast<std::size_t>(2 + i % 7), static_cast<char>('b' + i % 20)), "\"}\n");
  const std::string file = path("rows.jsonl");
  write_file_atomically(file, lines);
  const Words data = {"--train_file", file, "--save_strategy", "no"};
  train_on("one", one, data);
  for (const Mesh& mesh : {Mesh{"tp2_sp", 2, 1, {"--tp_size", "2", "--sequence_parallel"}},
                           Mesh{"all", 4, 1, {"--tp_size", "2", "--cp_size", "2", "--sequence_parallel"}},
                           Mesh{"dp2", 4, 2, {"--tp_size", "2", "--sequence_parallel"}}}) {
    train_on(mesh.name, mesh, data);
    expect_same_run(mesh.name, "one", mesh.name);
  }
}

// Combinations ruled out by the model (layout/mesh_rules.h) or by the data.
TEST_F(TrainMesh, what_the_model_does_not_allow_is_told_with_what_it_does) {
  const std::string examples = path("examples.jsonl");
  write_file_atomically(examples, "{\"text\": \"one\"}\n{\"text\": \"another one\"}\n");
  struct Case {
    Mesh mesh;
    Words more;
    const char* error;
  };
  const std::vector<Case> cases = {
      {{"tp3", 3, 1, {"--tp_size", "3"}}, {}, "the 4 of llama are not divisible by 3; tp may be 1"},
      {{"mlp", 4, 1, {"--tp_size", "4"}},
       {"--config_overrides",
        "num_hidden_layers=2,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
        "intermediate_size=50,vocab_size=257,max_position_embeddings=16"},
       "intermediate size 50 of llama is not divisible by 4; tp may be 1, 2"},
      {{"odd", 2, 1, {"--tp_size", "2", "--sequence_parallel", "--block_size", "15"}},
       {},
       "must be divisible by tp = 2 (sequence_parallel); make it 14, 16"},
      {{"heads", 4, 1, {"--cp_size", "2", "--tp_size", "2", "--cp_comm_type", "a2a"}},
       {"--config_overrides",
        "num_hidden_layers=2,hidden_size=16,num_attention_heads=2,num_key_value_heads=2,head_dim=8,"
        "intermediate_size=48,vocab_size=257,max_position_embeddings=16"},
       "a2a divides heads over 2 ranks, but llama has 1 head"},
      {{"rows", 4, 1, {"--tp_size", "4", "--sequence_parallel"}},
       {"--train_file", examples, "--config_overrides",
        "num_hidden_layers=2,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
        "intermediate_size=48,vocab_size=257,max_position_embeddings=14",
        "--block_size", "14"},
       "padded to 16 so that tp_size 4 divides them"},
  };
  for (const Case& one : cases) {
    const RunConfig run = run_config(one.mesh.name, one.mesh, one.more);
    run_ranks(
        one.mesh.ranks,
        [&](comm::World& world) {
          be_quiet();
          try {
            train::train(run, Value::make_object());
            ADD_FAILURE() << one.error << ": it ran";
          } catch (const Error& error) {
            const bool told = std::string(error.what()).find(one.error) != std::string::npos;
            EXPECT_TRUE(told || world.rank() > 0) << error.what();
          }
        },
        time_limit(30));
    EXPECT_FALSE(path_exists(path(one.mesh.name)));
  }
}

TEST_F(TrainMesh, a_mesh_that_does_not_fit_is_refused_before_anything_is_written) {
  const RunConfig run = run_config("refused", {"tp3", 3, 1, {"--tp_size", "3"}}, {});
  run_ranks(
      3,
      [&](comm::World& world) {
        be_quiet();
        try {
          train::train(run, Value::make_object());
          ADD_FAILURE() << "it ran";
        } catch (const Error& error) {
          const bool told = std::string(error.what()).find("heads") != std::string::npos;
          EXPECT_TRUE(told || world.rank() > 0) << error.what();
        }
      },
      time_limit(30));
  EXPECT_FALSE(path_exists(path("refused")));
}

}  // namespace
}  // namespace tessera::testing
