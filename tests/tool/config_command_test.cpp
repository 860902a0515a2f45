// tessera config as a user runs it; and a run, described in five ways, that trains to the same bits each time.

#include "../config/five_ways.h"
#include "program.h"

namespace tessera::testing {
namespace {

class ConfigCommand : public ToolTest {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    write_file_atomically(at(name), text);
    return at(name);
  }
  /// Hides the developer's own environment.
  launch::Captured config(const Strings& arguments) const {
    return tessera(Strings{"config"} + arguments, {{"HF_HOME", at("hf")}, {"WORLD_SIZE", {}}, {"RANK", {}}});
  }
  /// As config, with answers on standard input.
  launch::Captured answer(const std::string& answers, const std::string& arguments) const {
    return launch::run_and_capture(
        {"/bin/sh", "-c", concat("'", program, "' config ", arguments, " < '", file("answers", answers), "'")},
        {{"HF_HOME", at("hf")}}, patience(120));
  }
};

TEST_F(ConfigCommand, ShowsValuesAndOrigins) {
  const std::string yaml = file("a.yaml", "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 2\n");
  const auto text = config({"show", "--config_file", yaml, "--learning_rate", "1e-3"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(contains(text.out, concat("bf16          = true"))) << text.out;
  EXPECT_TRUE(contains(text.out, concat("(", yaml, ":2)\n"))) << text.out;
  EXPECT_TRUE(contains(text.out, "(--learning_rate)\n"));
  EXPECT_FALSE(contains(text.out, "weight_decay")) << "defaults only with --all";
  EXPECT_TRUE(contains(config({"show", "--all"}).out, "(default)\n"));
  const Value json = parse_json(config({"show", "--format", "json", "--config_file", yaml}).out, "json");
  EXPECT_EQ(json.at("sharding").at("strategy").at("value").as_string(), "full_shard");
  EXPECT_EQ(json.at("sharding").at("strategy").at("origin").as_string(), yaml + ":1");
  const auto as_yaml = config({"show", "--format=yaml", "--config_file", yaml});
  EXPECT_EQ(dump_json(parse_yaml(as_yaml.out, "yaml")), dump_json(json));
  // the output is valid as input
  const auto back = config({"show", "--format", "json", "--config", file("shown.yaml", as_yaml.out)});
  EXPECT_EQ(parse_json(back.out, "json").at("sharding").at("strategy").at("value").as_string(), "full_shard")
      << back.err;
  const auto wrong = config({"show", "--lerning_rate", "1"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.err, "tessera: unknown flag --lerning_rate; did you mean --learning_rate?\n");
  EXPECT_EQ(config({"show", "--format", "xml"}).exit_code, 2);
}

TEST_F(ConfigCommand, AFileIsOfTheKindItIsSaidToBe) {
  const std::string plain = file("plain.yaml", "seed: 5\n"), megatron = file("m.yaml", "MODEL_ARGS:\n  --seed: 5\n");
  EXPECT_EQ(config({"check", plain, "--kind", "training_args"}).exit_code, 0);
  EXPECT_EQ(config({"check", megatron, "--kind", "megatron"}).exit_code, 0);
  EXPECT_EQ(config({"check", plain, "--kind", "megatron"}).out,
            concat(plain, ": has no MODEL_ARGS, which contains Megatron-LM's arguments\n"));
  EXPECT_EQ(config({"check", megatron, "--kind", "training_args"}).out,
            concat(megatron, ": has MODEL_ARGS: use --kind megatron\n"));
}

TEST_F(ConfigCommand, ChecksAFileWithoutTheShellsVariables) {
  const std::string good = file("good.yaml", "distributed_type: MULTI_CPU\nnum_processes: 2\n");
  const auto run = tessera({"config", "check", good}, {{"HF_HOME", at("hf")},
                                                       {"ACCELERATE_USE_FSDP", "true"},
                                                       {"FSDP_SHARDING_STRATEGY", "BOGUS"},
                                                       {"WORLD_SIZE", {}}});
  EXPECT_EQ(run.exit_code, 0) << run.out;
}

TEST_F(ConfigCommand, ChecksFilesOfDifferentKindsAsOneRun) {
  const std::string accelerate = file("a.yaml",
                                      "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  "
                                      "zero_stage: 2\n  gradient_accumulation_steps: 2\n");
  const auto deepspeed = [&](const char* steps) {
    return file("d.json", concat(R"({"gradient_clipping": 1.0, "gradient_accumulation_steps": )", steps, "}"));
  };
  EXPECT_EQ(config({"check", accelerate, deepspeed("2")}).exit_code, 0);
  const auto two = config({"check", accelerate, deepspeed("4")});
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_TRUE(contains(two.out, "in one run: ") &&
              contains(two.out, "ds gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2"))
      << two.out;
}

TEST_F(ConfigCommand, ChecksEveryKindOfFileAndNamesAllProblems) {
  const std::string good = file("good.yaml",
                                "distributed_type: FSDP\nnum_processes: 2\ndebug: true\nfsdp_config:\n  "
                                "fsdp_use_orig_params: false\n  fsdp_sharding_strategy: 1\n");
  const auto ok = config({"check", good});
  EXPECT_EQ(ok.exit_code, 0) << ok.out;
  EXPECT_TRUE(ok.out.starts_with(concat(good, ": accelerate's file, ok: 3 settings\n"))) << ok.out;
  EXPECT_TRUE(contains(ok.out, concat("  ", good, ":5: fsdp_use_orig_params has no effect: "))) << ok.out;
  // config show counts the same number of settings in the file, and prints the same warnings
  for (const Strings& words : {Strings{"--config_file", good}, Strings{good}}) {
    const auto shown = config(Strings{"show"} + words);
    Strings warnings = split(ok.out, '\n');
    warnings.erase(warnings.begin());
    std::string expected;
    for (const std::string& line : warnings)
      if (!line.empty()) expected += concat("warning: ", trim(line), "\n");
    EXPECT_EQ(shown.err, expected);
    std::size_t settings = 0;
    for (const std::string& line : split(shown.out, '\n')) settings += contains(line, concat("(", good, ":"));
    EXPECT_EQ(settings, 3u) << shown.out;
  }
  const std::string uneven = file("uneven.json", R"({"train_batch_size": 6, "train_micro_batch_size_per_gpu": 2})");
  for (const char* processes : {"3", "4"}) {
    const int verdict = config({"check", uneven, "--num_processes", processes}).exit_code;
    EXPECT_EQ(verdict, processes[0] == '3' ? 0 : 2);
    EXPECT_EQ(config({"show", uneven, "--num_processes", processes}).exit_code, verdict);
  }

  const std::string bad =
      file("bad.yaml", "distributed_type: FSDPP\nnum_process: 4\nfsdp_config:\n  fsdp_shardng_strategy: 2\n");
  const auto two = config({"check", good, bad});
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_TRUE(contains(two.out, concat(bad, ":1:19: distributed_type must be one of "))) << two.out;
  EXPECT_TRUE(contains(two.out, concat("\n", bad, ":2:14: unknown key num_process; did you mean num_processes?\n")))
      << two.out;

  const std::pair<const char*, const char*> kinds[] = {
      {R"({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}})", "DeepSpeed's JSON"},
      {R"({"sharding_strategy": "FULL_SHARD", "forward_prefetch": true})", "an fsdp_config"},
      {R"({"output_dir": "out", "push_to_hub": false})", "a file of TrainingArguments"},
      {R"({"sharding": {"strategy": "zero1"}})", "Tessera's own file"},
      {R"({"model": {"config_name": "gpt2-tiny"}})", "Tessera's own file"}};
  for (const auto& [text, title] : kinds) {
    const auto run = config({"check", file("kind.json", text)});
    EXPECT_EQ(run.exit_code, 0) << run.out;
    EXPECT_TRUE(contains(run.out, concat(": ", title, ", ok: "))) << run.out;
  }
  const auto forced = config({"check", "--kind", "fsdp_config", file("kind.json", R"({"train_batch_size": 2})")});
  EXPECT_EQ(forced.exit_code, 2);
  EXPECT_TRUE(contains(forced.out, "unknown key train_batch_size")) << forced.out;
  EXPECT_EQ(config({"check"}).exit_code, 2);
  EXPECT_TRUE(contains(config({"check", at("none.yaml")}).out, "none.yaml")) << "a file that is not there";
  EXPECT_TRUE(contains(config({"check", file("odd.json", "{\"zzz\": 1}")}).out, "it contains no known key"));
  EXPECT_TRUE(contains(config({"check", "--kind", "deepsped", good}).out, "did you mean deepspeed?"));
}

TEST_F(ConfigCommand, ConvertsAndSaysWhatIsLost) {
  const std::string json = file(
      "ds.json", R"({"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, )"
                 R"("zero_optimization": {"stage": 2}})");
  const auto run = config({"convert", json, "--to", "accelerate", "--output", at("a.yaml")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(contains(run.err, "warning: --learning_rate 1e-04: accelerate's file has no key for it\n")) << run.err;
  const Value written = read_yaml(at("a.yaml"));
  EXPECT_EQ(written.at("distributed_type").as_string(), "DEEPSPEED");
  EXPECT_EQ(written.at("deepspeed_config").at("zero_stage").as_int(), 2);
  const auto again = config({"convert", json, "--to", "accelerate", "--output", at("a.yaml")});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_EQ(again.err, concat("tessera: ", at("a.yaml"), " already exists; choose another name, or use --overwrite\n"));
  EXPECT_EQ(config({"convert", json, "--to", "accelerate", "--output", at("a.yaml"), "--overwrite"}).exit_code, 0);
  EXPECT_EQ(config({"convert", json, "--to", "megatron"}).exit_code, 2);
  EXPECT_EQ(config({"convert", "--to", "tessera"}).exit_code, 2);
  // flags also form a configuration
  const auto flags = config({"convert", "--fsdp", "full_shard", "--to", "tessera"});
  EXPECT_EQ(flags.out, "sharding:\n  strategy: full_shard\n") << flags.err;
}

TEST_F(ConfigCommand, DefaultUpdateAndToFsdp2) {
  const auto first = config({"default", "--mixed_precision", "bf16"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  const std::string path = at("hf/accelerate/default_config.yaml");
  EXPECT_EQ(first.out, concat("accelerate configuration saved at ", path, "\n"));
  EXPECT_EQ(read_yaml(path).at("mixed_precision").as_string(), "bf16");
  EXPECT_TRUE(contains(config({"default"}).out, "already exists")) << "it is not overwritten";
  EXPECT_EQ(config({"default", "--mixed_precision", "fp12", "--config_file", at("x.yaml")}).exit_code, 2);

  const std::string old_file = file(
      "old.yaml", "distributed_type: FSDP\nfp16: true\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: 2\n");
  const auto update = config({"update", "--config_file", old_file});
  EXPECT_EQ(update.exit_code, 0) << update.err;
  EXPECT_EQ(update.out, concat("Successfully updated the configuration file at ", old_file, ".\n"));
  EXPECT_EQ(read_yaml(old_file).at("mixed_precision").as_string(), "fp16");
  EXPECT_EQ(config({"update", "--config_file", at("none.yaml")}).exit_code, 2);

  const auto converted = config({"to-fsdp2", "--config_file", old_file, "--output_file", at("new.yaml")});
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_EQ(read_yaml(at("new.yaml")).at("fsdp_config").at("fsdp_reshard_after_forward").as_bool(), false);
  EXPECT_EQ(config({"to-fsdp2", "--config_file", old_file}).exit_code, 2) << "neither --output_file nor --overwrite";
  EXPECT_EQ(config({"to-fsdp2", "--config_file", old_file, "--output_file", at("new.yaml")}).exit_code, 2)
      << "the file exists";
  EXPECT_EQ(config({"to-fsdp2", "--config_file", old_file, "--overwrite"}).exit_code, 0);
  EXPECT_EQ(read_yaml(old_file).at("fsdp_config").at("fsdp_version").as_int(), 2);
}

TEST_F(ConfigCommand, AsksThroughAPipe) {
  const auto run = answer("\n\nyes\n\n\nbf16\n", "--config_file '" + at("asked.yaml") + "'");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(run.out.ends_with(concat("accelerate configuration saved at ", at("asked.yaml"), "\n"))) << run.out;
  EXPECT_EQ(config({"check", at("asked.yaml")}).exit_code, 0);
  const auto early = answer("\n\n", "--config_file '" + at("none.yaml") + "'");
  EXPECT_EQ(early.exit_code, 2);
  EXPECT_TRUE(contains(early.err, "the answers end at the question \"Do you want to run your training on CPU only"))
      << early.err;
  EXPECT_FALSE(path_exists(at("none.yaml")));
  EXPECT_EQ(answer("\n\nyes\n\n\nbf16\n", "").exit_code, 0);
  EXPECT_TRUE(path_exists(at("hf/accelerate/default_config.yaml")));
}

TEST_F(ConfigCommand, SchemaDocsAndHelp) {
  EXPECT_EQ(parse_json(config({"schema"}).out, "schema").at("type").as_string(), "object");
  EXPECT_TRUE(contains(config({"docs"}).out, "| `zero_optimization.stage` | acts: `zero_stage` |"));
  EXPECT_TRUE(contains(config({"--help"}).out, "tessera config convert FILE --to KIND"));
  for (const std::string& line : split(config({"--help"}).out, '\n')) EXPECT_LE(line.size(), 80u) << line;
  const auto wrong = config({"chek"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_EQ(wrong.err, "tessera: tessera config has no command 'chek'; did you mean 'check'?\n");
  EXPECT_EQ(config({"docs", "now"}).exit_code, 2);
}

/// The losses as written, digit by digit.
Strings losses(const std::string& metrics_file) {
  Strings out;
  for (const std::string& line : split(read_file(metrics_file), '\n')) {
    const std::size_t at = line.find("\"loss\":");
    if (at != std::string::npos) out.push_back(line.substr(at, line.find_first_of(",}", at) - at));
  }
  return out;
}

TEST_F(ConfigCommand, TheSameRunDescribedFiveWaysHasTheSameLossesBitForBit) {
  for (const config::testing::Run& run : config::testing::runs_in_five_ways()) {
    Strings first;
    for (const config::testing::Way& way : run.ways) {
      const std::string output = concat("out_", way.file);
      // DeepSpeed's file sets the learning rate with its optimizer; for the other files it is passed as a flag
      const Strings flags = config::testing::flags_of(way, at(""));
      const auto done = tessera(
          Strings{"train",
                  "--config_name",
                  "gpt2-tiny",
                  "--config_overrides",
                  "n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256",
                  "--tokenizer_name",
                  "byte",
                  "--train_file",
                  at("text.txt"),
                  "--block_size",
                  "32",
                  "--logging_steps",
                  "1",
                  "--max_steps",
                  "3",
                  "--save_strategy",
                  "no",
                  "--overwrite_output_dir",
                  "--output_dir",
                  at(output)} +
          flags);
      ASSERT_EQ(done.exit_code, 0) << run.name << ", " << way.name << "\n" << done.err;
      const Strings came = losses(at(output + "/metrics.jsonl"));
      ASSERT_GE(came.size(), 3u) << way.name;
      if (first.empty()) first = came;
      EXPECT_EQ(join(came), join(first)) << run.name << ", " << way.name;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
