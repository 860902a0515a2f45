// `tessera train --device xla` compared with the same run on the CPU.

#include <tests/tool/program.h>
#include <tests/xla/plugin_for_tests.h>

#include <cstdlib>

namespace tessera::testing {
namespace {

class XlaProgram : public ToolTest {
 protected:
  void SetUp() override {
    if (cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
    setenv("TESSERA_XLA_CACHE", at("programs").c_str(), 1);
  }
  void TearDown() override { unsetenv("TESSERA_XLA_CACHE"); }
  Strings on_xla(const std::string& devices) const {
    return {"--device", "xla", "--pjrt_plugin", cpu_plugin(), "--xla_devices", devices};
  }
  void run(const Strings& arguments) const {
    const auto ended = tessera(arguments);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  void expect_same_losses(const std::string& a, const std::string& b, double relative = 1e-5) const {
    const auto one = curve(a), other = curve(b);
    ASSERT_EQ(one.size(), other.size());
    ASSERT_GT(one.size(), 3u);
    for (const auto& [step, loss] : one)
      EXPECT_NEAR(other.at(step), loss, relative * std::max(loss, 1.0)) << b << " step " << step;
  }
};

/// Step -> evaluation loss.
std::map<std::int64_t, double> evaluations(const std::vector<Value>& metrics) {
  std::map<std::int64_t, double> losses;
  for (const Value& line : metrics)
    if (line.find("eval_loss") != nullptr && line.find("step") != nullptr)
      losses[line.at("step").as_int()] = line.at("eval_loss").as_real();
  return losses;
}

/// A run with `rows` rows in each of 4 micro-batches, which are devices under --device xla.
Strings settings(const std::string& micro_batches) {
  return {"--per_device_train_batch_size",
          "2",
          "--gradient_accumulation_steps",
          micro_batches,
          "--weight_decay",
          "0.1",
          "--seed",
          "3",
          "--config_overrides",
          "n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,"
          "eos_token_id=256,resid_pdrop=0.2,embd_pdrop=0.1,attn_pdrop=0.15"};
}
/// Drops overrides, because training() has its own.
Strings without_overrides(Strings words) {
  const auto found = std::find(words.begin(), words.end(), "--config_overrides");
  words.erase(found, found + 2);
  return words;
}

TEST_F(XlaProgram, FourShardedDevicesDropWhatOneProcessDrops) {
  const auto training_of = [&](const std::string& output, const Strings& more) {
    return without_overrides(training(output, {})) + more;
  };
  // The last of five steps has only four rows.
  run(training_of("cpu", settings("4") + Strings{"--num_train_epochs", "1", "--max_train_samples", "36"}));
  run(training_of("xla", settings("1") + on_xla("4") +
                             Strings{"--num_train_epochs", "1", "--max_train_samples", "36", "--fsdp", "full_shard"}));
  expect_same_losses("cpu", "xla");
  run(training_of("again", settings("1") + on_xla("4") +
                               Strings{"--num_train_epochs", "1", "--max_train_samples", "36", "--fsdp",
                                       "shard_grad_op", "--gradient_checkpointing", "true"}));
  expect_same_losses("cpu", "again");
  const Value config = read_json(at("xla/config.json"));
  EXPECT_EQ(config.at("model_type").as_string(), "gpt2");
}

class XlaOptimizer : public XlaProgram, public ::testing::WithParamInterface<Strings> {};
INSTANTIATE_TEST_SUITE_P(Each, XlaOptimizer,
                         ::testing::Values(Strings{"--optim", "adamw"},
                                           Strings{"--optim", "rmsprop", "--optim_args", "momentum=0.5,eps=1e-4"},
                                           Strings{"--optim", "adagrad", "--optim_args", "lr_decay=0.1"}));

TEST_P(XlaOptimizer, ARunMovesFromOneDeviceToTheOther) {
  const Strings common = Strings{"--per_device_train_batch_size",
                                 "2",
                                 "--max_steps",
                                 "8",
                                 "--save_steps",
                                 "4",
                                 "--weight_decay",
                                 "0.1",
                                 "--validation_file",
                                 at("text.txt"),
                                 "--max_eval_samples",
                                 "8",
                                 "--eval_strategy",
                                 "steps",
                                 "--eval_steps",
                                 "4"} +
                         GetParam();
  const Strings four = {"--gradient_accumulation_steps", "4"}, devices = on_xla("4") + Strings{"--zero_stage", "3"};
  run(training("cpu", common + four));
  run(training("xla", common + devices));
  expect_same_losses("cpu", "xla");
  const auto evaluated = evaluations(metrics("cpu")), by_xla = evaluations(metrics("xla"));
  ASSERT_EQ(evaluated.size(), 2u);
  for (const auto& [step, loss] : evaluated) EXPECT_NEAR(by_xla.at(step), loss, 1e-5 * std::max(loss, 1.0)) << step;
  // Resumes one run at step 4 as the other, up to step 8.
  const auto go_on = [&](const std::string& from, const std::string& output, const Strings& where) {
    run(training(output, common + where + Strings{"--resume_from_checkpoint", at(from + "/checkpoint-4")}));
    const auto whole = curve("cpu"), rest = curve(output);
    ASSERT_EQ(rest.size(), 4u);
    for (const auto& [step, loss] : rest) EXPECT_NEAR(loss, whole.at(step), 1e-5 * std::max(loss, 1.0)) << output;
  };
  go_on("cpu", "to_xla", devices);
  go_on("xla", "to_cpu", four);
}

TEST_F(XlaProgram, Bf16StaysNearTheCpusBf16) {
  const Strings common = {"--per_device_train_batch_size", "2", "--max_steps", "6", "--bf16", "true"};
  run(training("cpu", common + Strings{"--gradient_accumulation_steps", "4"}));
  run(training("xla", common + on_xla("4") + Strings{"--fsdp", "full_shard"}));
  expect_same_losses("cpu", "xla", 2e-3);
}

/// Frozen weights are sharded, too, but have no optimizer states.
TEST_F(XlaProgram, AdaptersAreTrained) {
  run(training("base", {"--max_steps", "1"}));
  const auto adapters = [&](const std::string& output, const Strings& more) {
    return Strings{"train",
                   "--model_name_or_path",
                   at("base"),
                   "--train_file",
                   at("text.txt"),
                   "--block_size",
                   "32",
                   "--per_device_train_batch_size",
                   "2",
                   "--max_steps",
                   "6",
                   "--learning_rate",
                   "1e-2",
                   "--logging_steps",
                   "1",
                   "--lora_r",
                   "4",
                   "--lora_dropout",
                   "0.1",
                   "--output_dir",
                   at(output)} +
           more;
  };
  run(adapters("cpu", {"--gradient_accumulation_steps", "4"}));
  run(adapters("xla", on_xla("4") + Strings{"--fsdp", "full_shard"}));
  expect_same_losses("cpu", "xla");
}

/// The configuration file of Hugging Face's FSDP guide with its lines for TPUs.
TEST_F(XlaProgram, TheGuidesFileRunsAsOnTheCpu) {
  const std::string file =
      "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\ndowncast_bf16: \"no\"\nfsdp_config:\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch_policy: BACKWARD_PRE\n"
      "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_forward_prefetch: false\n  fsdp_offload_params: true\n"
      "  fsdp_sharding_strategy: 1\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_sync_module_states: true\n"
      "  fsdp_transformer_layer_cls_to_wrap: BertLayer\n  fsdp_use_orig_params: true\nmachine_rank: 0\n"
      "main_training_function: main\nmixed_precision: \"no\"\nnum_machines: 1\nnum_processes: 2\n"
      "rdzv_backend: static\nsame_network: true\ntpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\n";
  write_file_atomically(at("tpu.yaml"), file +
                                            "use_cpu: false\nxla: True\nxla_fsdp_settings:\n  compute_dtype: float32\n"
                                            "xla_fsdp_grad_ckpt: True\n");
  write_file_atomically(at("cpu.yaml"), file + "use_cpu: true\n");
  const auto launched = [&](const std::string& name) {
    return Strings{"launch",
                   "--config_file",
                   at(name + ".yaml"),
                   program,
                   "train",
                   "--model_name_or_path",
                   source_path("tests/fixtures/bert_tiny"),
                   "--train_file",
                   at("text.txt"),
                   "--block_size",
                   "32",
                   "--per_device_train_batch_size",
                   "2",
                   "--max_steps",
                   "5",
                   "--logging_steps",
                   "1",
                   "--output_dir",
                   at(name)};
  };
  setenv("TESSERA_PJRT_PLUGIN", cpu_plugin().c_str(), 1);
  run(launched("tpu"));
  unsetenv("TESSERA_PJRT_PLUGIN");
  run(launched("cpu"));
  expect_same_losses("cpu", "tpu");
}

/// Rows of many lengths are padded to a few lengths, each of which needs its own program.
TEST_F(XlaProgram, RowsOfManyLengthsNeedFewPrograms) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines +=
        concat("{\"text\": \"", std::string(static_cast<std::size_t>(5 + i * 13 % 50), static_cast<char>('a' + i % 26)),
               " and so on.\"}\n");
  write_file_atomically(at("rows.jsonl"), lines);
  const auto rows = [&](const std::string& output, const Strings& more) {
    return Strings{"train",
                   "--config_name",
                   "gpt2-tiny",
                   "--config_overrides",
                   "n_layer=1,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256",
                   "--tokenizer_name",
                   "byte",
                   "--train_file",
                   at("rows.jsonl"),
                   "--max_seq_length",
                   "64",
                   "--packing",
                   "false",
                   "--per_device_train_batch_size",
                   "1",
                   "--num_train_epochs",
                   "1",
                   "--logging_steps",
                   "1",
                   "--learning_rate",
                   "1e-3",
                   "--output_dir",
                   at(output)} +
           more;
  };
  run(rows("cpu", {"--gradient_accumulation_steps", "2"}));
  const auto ended = tessera(rows("xla", on_xla("2")));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_same_losses("cpu", "xla");
  std::size_t programs = 0;
  for (const std::string& line : split(ended.out + ended.err, '\n'))
    programs += contains(line, "xla: compiled the step");
  EXPECT_GE(programs, 2u);
  EXPECT_LE(programs, 8u);
  // Models that use the length in other ways are refused before the first step.
  const auto refused = [&](const std::string& model, const Strings& more, const std::string& message) {
    auto words = rows("refused", on_xla("2") + more);
    words[1] = "--model_name_or_path";
    words[2] = source_path("tests/fixtures/" + model);
    words.erase(words.begin() + 3, words.begin() + 5);
    const auto result = tessera(words);
    EXPECT_EQ(result.exit_code, 2) << model;
    EXPECT_TRUE(contains(result.err, message)) << result.err;
    EXPECT_FALSE(path_exists(at("refused"))) << model;
  };
  refused("llama/dynamic_rope", {}, "rotations (rope_type dynamic or longrope) depend on the length");
  refused("llama/mixtral", {}, "models with experts cannot be compiled");
}

/// Encoder tokens attend to later ones, so the end of a row is an argument of the program.
TEST_F(XlaProgram, AnEncodersRowsOfManyLengthsAreMasked) {
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    std::string text = i % 2 == 0 ? "the light of heaven" : "the face of the deep water";
    for (int more = 0; more < i % 5; ++more) text += " and god said let there be light";
    lines += concat("{\"text\": \"", text, "\", \"label\": \"", i % 2 == 0 ? "light" : "dark", "\"}\n");
  }
  write_file_atomically(at("labelled.jsonl"), lines);
  const auto rows = [&](const std::string& output, const Strings& more) {
    return Strings{"train",
                   "--model_name_or_path",
                   source_path("tests/fixtures/bert_tiny"),
                   "--train_file",
                   at("labelled.jsonl"),
                   "--max_seq_length",
                   "40",
                   "--learning_rate",
                   "1e-3",
                   "--max_steps",
                   "6",
                   "--logging_steps",
                   "1",
                   "--output_dir",
                   at(output)} +
           more;
  };
  run(rows("cpu", {"--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2"}));
  run(rows("xla", on_xla("2") + Strings{"--per_device_train_batch_size", "4", "--fsdp", "full_shard"}));
  expect_same_losses("cpu", "xla");
}

/// GSPMD divides the same step; evaluations run on the devices, too.
TEST_F(XlaProgram, AGlobalProgramTrainsAndEvaluatesAsTheCpu) {
  const auto training_of = [&](const std::string& output, const Strings& more) {
    return without_overrides(training(output, {})) + more +
           Strings{"--num_train_epochs",
                   "1",
                   "--max_train_samples",
                   "36",
                   "--validation_file",
                   at("text.txt"),
                   "--max_eval_samples",
                   "7",
                   "--eval_strategy",
                   "steps",
                   "--eval_steps",
                   "2",
                   "--save_steps",
                   "2",
                   "--per_device_eval_batch_size",
                   "3",
                   "--load_best_model_at_end",
                   "true"};
  };
  const Strings v2 = {"--fsdp", "full_shard", "--fsdp_config", R"({"xla": true, "xla_fsdp_v2": true})"};
  run(training_of("cpu", settings("4")));
  const auto ended = tessera(training_of("v2", settings("1") + on_xla("4") + v2));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::string said = ended.out + ended.err;
  EXPECT_TRUE(contains(said, "(4 devices x 2 x 1 micro-batch)")) << said;
  EXPECT_TRUE(contains(said, "xla: compiled the evaluation of a micro-batch")) << said;
  run(training_of("v1", settings("1") + on_xla("4") + Strings{"--fsdp", "full_shard"}));
  run(training_of("v2_again", settings("1") + on_xla("4") + v2 + Strings{"--gradient_checkpointing", "true"}));
  for (const char* const other : {"v2", "v1", "v2_again"}) {
    expect_same_losses("cpu", other);
    const auto evaluated = evaluations(metrics("cpu")), by_devices = evaluations(metrics(other));
    ASSERT_EQ(evaluated.size(), 3u);  // after steps 2 and 4, and after the last one, the fifth
    ASSERT_EQ(by_devices.size(), 3u) << other;
    for (const auto& [step, loss] : evaluated) EXPECT_NEAR(by_devices.at(step), loss, 1e-5 * loss) << other;
  }
}

/// The second run compiles nothing; a damaged entry is recompiled, with a warning.
TEST_F(XlaProgram, ASecondRunLoadsThePrograms) {
  const auto start = [&](const std::string& output) {
    const auto ended = tessera(training(output, on_xla("2") + Strings{"--max_steps", "5", "--fsdp", "full_shard"}));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out + ended.err;
  };
  EXPECT_TRUE(contains(start("first"), "xla: compiled the step of a micro-batch"));
  const auto entries = list_folder(at("programs"));
  EXPECT_EQ(entries.size(), 3u);  // gradients, norm, update
  const std::string second = start("second");
  EXPECT_TRUE(contains(second, "xla: loaded the step of a micro-batch")) << second;
  EXPECT_FALSE(contains(second, "compiled the step"));
  EXPECT_EQ(list_folder(at("programs")), entries);
  EXPECT_EQ(curve("first"), curve("second"));
  for (const std::string& name : entries) {
    std::string bytes = read_file(path_join(at("programs"), name));
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file_atomically(path_join(at("programs"), name), bytes);
  }
  const std::string third = start("third");
  std::size_t warnings = 0;  // one, although every program is damaged
  for (const std::string& line : split(third, '\n'))
    warnings += contains(line, "xla: a program of the cache cannot be used and is compiled again: ");
  EXPECT_EQ(warnings, 1u) << third;
  EXPECT_TRUE(contains(third, "xla: compiled the step of a micro-batch"));
  EXPECT_EQ(curve("first"), curve("third"));
  EXPECT_TRUE(contains(start("fourth"), "xla: loaded the step of a micro-batch"));
}

TEST_F(XlaProgram, WhatCannotBeCompiledIsRefusedBeforeAnythingIsWritten) {
  struct Case {
    Strings more;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"--device", "xla"}, "device xla: no PJRT plug-in is set. On a TPU machine run `pip install libtpu`"},
      {{"--device", "xla", "--pjrt_plugin", "/nowhere.so"},
       "the PJRT plug-in cannot be loaded: /nowhere.so: cannot open shared object file"},
      {{"--device", "xla", "--pjrt_plugin", build_path("libtessera_core.so")},
       build_path("libtessera_core.so") + " is not a PJRT plug-in: it exports no GetPjrtApi()"},
      {on_xla("2") + Strings{"--optim", "muon"}, "--optim muon with --device xla: the compiled update is"}};
  for (const Case& c : cases) {
    const auto ended = tessera(training("refused", c.more));
    EXPECT_EQ(ended.exit_code, 2) << c.message;
    EXPECT_NE(ended.err.find(c.message), std::string::npos) << ended.err;
    EXPECT_FALSE(path_exists(at("refused")));
  }
  const auto two = tessera(Strings{"launch", "--num_processes", "2", program} + training("refused", on_xla("2")));
  EXPECT_NE(two.err.find("device xla: one process drives all devices of a host, but there are 2 processes"),
            std::string::npos)
      << two.err;
}

}  // namespace
}  // namespace tessera::testing
