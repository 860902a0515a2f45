// TrainingArguments: one test per argument, and the files that transformers writes.

#include <tessera/config/hf/training_args.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/flag_reader.h>
#include <tessera/config/resolve/resolve.h>
#include <tests/config/training_args_read.h>
#include <tests/paths.h>

namespace tessera::config {
namespace {

/// A value of the argument that differs from the default.
std::string sample(const KeyRow& row) {
  static const std::map<std::string_view, std::string> special = {
      {"optim", "lion_32bit"},
      {"adafactor", "true"},
      {"use_peft", "true"},
      {"use_lora", "true"},
      {"strict", "true"},
      {"bits", "4"},
      {"lora_enable", "true"},
      {"use_cpu", "true"},
      {"no_cuda", "true"},
      {"fsdp", "shard_grad_op"},
      {"fsdp_config", R"({"min_num_params":5})"},
      {"deepspeed", "ds.json"},
      {"lr_scheduler_kwargs", R"({"num_cycles":2})"},
      {"gradient_checkpointing_kwargs", R"({"use_reentrant":false})"},
      {"activation_checkpointing_kwargs", R"({"use_reentrant":false})"},
      {"model_type", "gpt2"},
      {"report_to", "none"},
      {"max_steps", "7"},
      {"logging_steps", "0.25"},
      {"accelerator_config", R"({"gradient_accumulation_kwargs":{"num_steps":3}})"},
      {"parallelism_config", R"({"dp_replicate_size":2,"dp_shard_size":4})"},
      {"resume_from_checkpoint", "last"}};
  if (const auto found = special.find(row.key); found != special.end()) return found->second;
  const Field& field = *find_field(row.setting);
  const Value initial = field.get(RunConfig{});
  if (field.is_boolean()) return initial.as_bool() ? "false" : "true";
  if (!field.rule.words.empty())
    return initial.as_string() == field.rule.words.back() ? field.rule.words.front() : field.rule.words.back();
  if (initial.is_string()) return "word";
  return std::holds_alternative<std::int64_t& (*)(RunConfig&)>(field.access) ? "9" : field.rule.most < 2 ? "0.25" : "9";
}
/// The resulting value of the setting.
Value expected(const KeyRow& row, const std::string& text) {
  RunConfig config;
  const std::string ours = row.key == "adafactor"                         ? "adafactor"
                           : row.key == "use_peft"                        ? "16"
                           : row.key == "use_lora"                        ? "64"
                           : row.key == "lora_enable"                     ? "64"
                           : row.key == "strict"                          ? "refuse"
                           : row.key == "bits"                            ? "true"
                           : row.key == "use_cpu" || row.key == "no_cuda" ? "cpu"
                           : row.key == "accelerator_config"              ? "3"
                           : row.key == "parallelism_config"              ? "hybrid_shard"
                                                                          : text;
  EXPECT_EQ(find_field(row.setting)->set(config, ours), std::nullopt) << row.key;
  return find_field(row.setting)->get(config);
}
std::string refused_value(const TrainingArgument& argument) {
  if (argument.shape == ArgumentShape::boolean) return argument.unset == "true" ? "false" : "true";
  return argument.row.key == "past_index" ? "2" : argument.unset.ends_with("1") ? "4" : "something";
}
std::string member(const std::string& key, const std::string& text) {
  const bool bare = text.starts_with("{") || text == "true" || text == "false" || parse_real(text);
  return concat("{\n\"", key, "\": ", bare ? text : dump_json(Value::of(text)), "}");
}

/// Without the note about the defaults of the program that the argument belongs to.
Read plain(Read read) {
  std::erase_if(read.resolved.notes,
                [](const std::string& note) { return note.find("whose defaults apply") != std::string::npos; });
  return read;
}

TEST_F(TrainingArguments, EveryRow) {
  std::size_t rows = 0;
  for (const KeyRow& row : training_args_rows()) {
    const TrainingArgument& argument = *find_training_argument(row.key);
    const std::string key(row.key);
    const std::size_t dot = key.find('.');
    const bool top = dot == std::string::npos;
    ++rows;
    ASSERT_TRUE(row.effect == Effect::acts ? find_field(row.setting) != nullptr
                                           : !row.why.empty() && row.setting.empty())
        << key;
    if (row.effect == Effect::acts && !top) continue;  // see MembersOfObjectsThatAct
    const std::string text = row.effect == Effect::acts ? sample(row) : refused_value(argument);
    const std::string below = top ? key : key.substr(dot + 1), above = key.substr(0, dot);
    const std::string inner =
        top ? text : concat("{\"", below, "\": ", text.starts_with("s") ? "\"something\"" : text, "}");
    const Read typed = plain(flags({concat("--", above, "=", inner)}));
    const std::string path = file("args.json", member(above, inner));
    const Read from_file = plain(read_file(path));
    switch (row.effect) {
      case Effect::acts:
        EXPECT_EQ(typed.problems.lines, Strings{}) << key;
        if (row.setting == "lora_r" && argument.shape == ArgumentShape::boolean) {  // a default of its program
          EXPECT_TRUE(typed.origin(row.setting).starts_with("derived (")) << key;
          EXPECT_EQ(dump_json(from_file.value(row.setting)), dump_json(expected(row, text))) << key;
          break;
        }
        EXPECT_EQ(typed.origin(row.setting), "--" + key);
        EXPECT_EQ(dump_json(typed.value(row.setting)), dump_json(expected(row, text))) << key;
        EXPECT_EQ(from_file.problems.lines, Strings{}) << key;
        if (key == "fsdp_config") {
          EXPECT_EQ(from_file.origin("min_num_params"), path + ":2");
          break;
        }
        EXPECT_EQ(from_file.origin(row.setting), path + ":2") << key;
        EXPECT_EQ(dump_json(from_file.value(row.setting)), dump_json(expected(row, text))) << key;
        break;
      case Effect::ignored:
        EXPECT_EQ(typed.problems.lines, Strings{}) << key;
        if (argument.program == trl_or_another) {  // a second note lists TRL's defaults
          EXPECT_EQ(typed.resolved.notes.size(), 2u) << key;
          EXPECT_NE(typed.resolved.notes.back().find("--" + key + " may be TRL's"), std::string::npos) << key;
          break;
        }
        EXPECT_EQ(typed.only_note(), concat("--", above, top ? "" : " " + below, " has no effect: ", row.why));
        EXPECT_EQ(from_file.only_note(),
                  concat(path, ":2: ", above, top ? "" : " " + below, " has no effect: ", row.why));
        break;
      case Effect::refused:
        EXPECT_EQ(typed.only_problem(), concat("--", above, top ? "" : ": " + below, ": ", row.why));
        EXPECT_EQ(from_file.only_problem(),
                  concat(path, ":2:", above.size() + 5, ": ", above, top ? "" : ": " + below, ": ", row.why));
        break;
    }
    if (row.effect == Effect::acts || !top) continue;
    for (const std::string& unset : split(argument.unset, '|')) {  // values equivalent to unset
      const Read nothing = plain(flags({concat("--", key, "=", unset)}));
      EXPECT_TRUE(unset.empty() || (nothing.problems.lines.empty() && nothing.resolved.notes.empty()))
          << key << "=" << unset;
      const Read no_words = plain(read_file(file("args.json", member(key, unset))));
      EXPECT_TRUE(no_words.problems.lines.empty() && no_words.resolved.notes.empty()) << key << ": " << unset;
    }
  }
  EXPECT_GT(rows, 170u);
}

// Alone, as a flag with JSON, as a flag with K=V, and in a file.
TEST_F(TrainingArguments, MembersOfObjectsThatAct) {
  struct Member {
    std::string_view key, value, setting, result;
  };
  static constexpr Member members[] = {
      {"parallelism_config.dp_replicate_size", "2", "strategy", "ddp"},
      {"parallelism_config.dp_shard_size", "4", "shard_group_size", "4"},
      {"parallelism_config.tp_size", "2", "tp_size", "2"},
      {"parallelism_config.cp_size", "2", "cp_size", "2"},
      {"parallelism_config.sp_size", "2", "cp_size", "2"},
      {"parallelism_config.cp_handler", R"({"cp_comm_strategy": "allgather"})", "cp_comm_type", "all_gather"},
      {"accelerator_config.gradient_accumulation_kwargs", R"({"num_steps": 3})", "gradient_accumulation_steps", "3"}};
  std::size_t acting = 0;
  for (const KeyRow& row : training_args_rows())
    acting += row.effect == Effect::acts && row.key.find('.') != std::string_view::npos;
  EXPECT_EQ(acting, std::size(members)) << "each acting member has a row above";
  for (const Member& member : members) {
    ASSERT_NE(find_training_argument(member.key), nullptr) << member.key;
    const std::size_t dot = member.key.find('.');
    const std::string above(member.key.substr(0, dot)), below(member.key.substr(dot + 1));
    const std::string object = concat("{\"", below, "\": ", member.value, "}");
    RunConfig config;
    EXPECT_EQ(find_field(member.setting)->set(config, member.result), std::nullopt);
    const auto expect = [&](const Read& read, const std::string& origin) {
      EXPECT_EQ(read.problems.lines, Strings{}) << member.key;
      EXPECT_EQ(read.resolved.notes, Strings{}) << member.key;
      EXPECT_EQ(read.origin(member.setting), origin) << member.key;
      EXPECT_EQ(dump_json(read.value(member.setting)), dump_json(find_field(member.setting)->get(config)))
          << member.key;
    };
    expect(flags({concat("--", above, "=", object)}), "--" + above);
    if (!member.value.starts_with("{"))
      expect(flags({concat("--", above), concat(below, "=", member.value)}), "--" + above);
    const std::string path = file("args.json", concat("{\n\"", above, "\": ", object, "}"));
    expect(read_file(path), path + ":2");
  }
}

// Written by tests/parity/training_args_defaults.py; it sets nothing that is unsupported here.
TEST_F(TrainingArguments, WhatTransformersWritesIsReadWithoutComplaint) {
  const std::string path = tessera::testing::source_path("tests/fixtures/training_args/defaults.json");
  const Value defaults = read_json(path);
  for (const auto& [key, value] : defaults.members()) EXPECT_NE(find_training_argument(key), nullptr) << key;
  EXPECT_GE(defaults.members().size(), 114u);
  const Read read = read_file(path);
  EXPECT_EQ(read.problems.lines, Strings{});
  EXPECT_EQ(read.resolved.notes.size(), 1u);
  EXPECT_TRUE(read.only_note().ends_with(": do_train has no effect: tessera train always trains")) << read.only_note();
  EXPECT_EQ(read.value("logging_steps").as_int(), 500);
  EXPECT_EQ(read.value("optim").as_string(), "adamw");
  EXPECT_EQ(read.value("report_to").as_string(), "none");
}

// The output of version 4, and the run that it describes.
TEST_F(TrainingArguments, WhatTransformers4WritesIsReadWithoutComplaint) {
  Problems problems;
  const Resolved resolved =
      resolve_flags({tessera::testing::source_path("tests/fixtures/training_args/defaults_v4.json"), "--compat", "v4"},
                    problems, [](const std::string&) { return std::optional<std::string>(); });
  EXPECT_EQ(problems.lines, Strings{});
  EXPECT_EQ(resolved.notes, Strings{});
  EXPECT_EQ(resolved.values.sharding.strategy, Strategy::ddp);
  EXPECT_EQ(resolved.values.output.report_to, "tensorboard");
  EXPECT_EQ(resolved.values.output.include_num_input_tokens_seen, CountedTokens::no);
  EXPECT_EQ(resolved.values.optimization.warmup_steps, 0);
}

TEST_F(TrainingArguments, NamesOfVersion4AreKnown) {
  for (const char* name : {"overwrite_output_dir",
                           "evaluation_strategy",
                           "per_gpu_train_batch_size",
                           "per_gpu_eval_batch_size",
                           "warmup_ratio",
                           "logging_dir",
                           "save_safetensors",
                           "no_cuda",
                           "use_mps_device",
                           "jit_mode_eval",
                           "use_ipex",
                           "fp16_opt_level",
                           "half_precision_backend",
                           "tpu_num_cores",
                           "tpu_metrics_debug",
                           "past_index",
                           "fsdp_min_num_params",
                           "fsdp_transformer_layer_cls_to_wrap",
                           "adafactor",
                           "group_by_length",
                           "use_legacy_prediction_loop",
                           "include_inputs_for_metrics",
                           "fp16_backend",
                           "push_to_hub_model_id",
                           "push_to_hub_organization",
                           "push_to_hub_token",
                           "mp_parameters",
                           "torchdynamo",
                           "ray_scope",
                           "include_tokens_per_second",
                           "dispatch_batches",
                           "split_batches",
                           "tp_size",
                           "sharded_ddp",
                           "xpu_backend"})
    EXPECT_NE(find_training_argument(name), nullptr) << name;
}

TEST_F(TrainingArguments, SpellingsOfFlags) {
  const std::vector<std::pair<Strings, std::string>> off = {
      {{"--gradient-checkpointing", "false"}, "false"}, {{"--no_gradient_checkpointing"}, "false"},
      {{"--no-gradient-checkpointing"}, "false"},       {{"--gradient_checkpointing"}, "true"},
      {{"--gradient-checkpointing=yes"}, "true"},       {{"--activation_checkpointing"}, "true"}};
  for (const auto& [words, value] : off) {
    const Read read = flags(words);
    EXPECT_EQ(dump_json(read.value("gradient_checkpointing")), value) << join(words, " ");
    EXPECT_EQ(read.origin("gradient_checkpointing"), words[0].substr(0, words[0].find('=')));
  }
  EXPECT_TRUE(flags({"--no_push_to_hub", "--no-torch-compile", "--dataloader_pin_memory", "--do_train"})
                  .resolved.notes.empty());
  EXPECT_EQ(flags({"--fsdp"}).value("fsdp").as_string(), "true");
  EXPECT_EQ(flags({"--fsdp", "full_shard", "auto_wrap", "--bf16"}).value("fsdp").as_string(), "full_shard auto_wrap");
  EXPECT_EQ(flags({"--fsdp", ""}).value("fsdp").as_string(), "false");
  EXPECT_EQ(flags({"--fsdp", file("run.json", "{}")}).value("fsdp").as_string(), "true");
  EXPECT_EQ(flags({"--include_num_input_tokens_seen", "--bf16"}).value("include_num_input_tokens_seen").as_string(),
            "all");
  EXPECT_EQ(
      flags({"--include_num_input_tokens_seen", "non_padding"}).value("include_num_input_tokens_seen").as_string(),
      "non_padding");
  EXPECT_EQ(flags({"--warmup_steps", "0.1"}).value("warmup_ratio").as_real(), 0.1);
  EXPECT_EQ(flags({"--optim", "adamw_torch_fused"}).value("optim").as_string(), "adamw");
  EXPECT_EQ(flags({"--label_names", "a", "b", "--seed", "3"}).value("seed").as_int(), 3);
  EXPECT_EQ(flags({"--deepspeed", "--deepspeed_config", "ds.json"}).value("deepspeed").as_string(), "ds.json");
  EXPECT_EQ(flags({"--model_type", "gpt2"}).origin("config_name"), "--model_type");
  EXPECT_EQ(flags({"--model_type", "gpt2", "--config_name", "x"}).only_note(),
            "--model_type has no effect: a model is given");
}

TEST_F(TrainingArguments, ObjectsAreTextOrFiles) {
  const std::string path = file("kwargs.json", "{\"num_cycles\": 3}");
  EXPECT_EQ(flags({"--lr_scheduler_kwargs", path}).value("lr_scheduler_kwargs").as_string(), "{\"num_cycles\":3}");
  EXPECT_EQ(flags({"--lr_scheduler_kwargs", "num_cycles=3"}).value("lr_scheduler_kwargs").as_string(), "num_cycles=3");
  const Read nested =
      read_file(file("a.yaml", "lr_scheduler_kwargs:\n  num_cycles: 3\ngradient_checkpointing_kwargs: {}\n"));
  EXPECT_EQ(nested.value("lr_scheduler_kwargs").as_string(), "{\"num_cycles\":3}");
  EXPECT_EQ(nested.origin("gradient_checkpointing_kwargs"), "default");
  const Read config =
      flags({"--accelerator_config",
             file("acc.json", R"({"split_batches": false, "gradient_accumulation_kwargs": {"num_steps": 4}})")});
  EXPECT_EQ(config.value("gradient_accumulation_steps").as_int(), 4);
  const Read divided = flags({"--parallelism_config", R"({"dp_shard_size": 2, "tp_size": 1})"});
  EXPECT_EQ(divided.value("strategy").as_string(), "full_shard");
  EXPECT_EQ(divided.value("shard_group_size").as_int(), 2);
  const Read mesh = flags({"--parallelism_config", R"({"dp_replicate_size": 2, "cp_size": 4, "tp_size": 2})"});
  EXPECT_EQ(mesh.value("strategy").as_string(), "hybrid_shard");
  EXPECT_EQ(mesh.value("shard_group_size").as_int(), 4) << "FSDP shards over dp_shard x cp";
  EXPECT_EQ(flags({"--parallelism_config", R"({"sp_size": 2})"}).value("cp_comm_type").as_string(), "a2a");
  EXPECT_EQ(flags({"--tp_size", "0"}).origin("tp_size"), "default");
}

TEST_F(TrainingArguments, WhatHasNoEffectIsOneWarning) {
  EXPECT_EQ(flags({"--dataloader_num_workers", "4", "--report_to", "tensorboard", "wandb", "--no_dataloader_pin_memory",
                   "--hub_token", "secret"})
                .only_note(),
            "arguments without effect: --dataloader_num_workers, --no_dataloader_pin_memory: rows are read from "
            "memory-mapped files, without worker processes; "
            "--report_to wandb: metrics go to TensorBoard or CSV (--report_to), and always to "
            "metrics.jsonl and report.html; --hub_token: nothing is uploaded");
  EXPECT_EQ(flags({"--dataloader_num_workers", "4", "--no_dataloader_pin_memory"}).only_note(),
            "--dataloader_num_workers, --no_dataloader_pin_memory have no effect: rows are read from memory-mapped "
            "files, without worker processes");
  const std::string path =
      file("a.yaml", "dataloader_num_workers: 4\nreport_to: [wandb, trackio]\nlearning_rate: 1e-4\n");
  const Read read = read_file(path);
  EXPECT_EQ(
      bare(read.only_note()),
      "a.yaml: arguments without effect: dataloader_num_workers (line 1): rows are read from memory-mapped files, "
      "without worker processes; "
      "report_to wandb (line 2), report_to trackio (line 2): metrics go to TensorBoard or CSV (--report_to), "
      "and always to metrics.jsonl and report.html");
  EXPECT_EQ(read.value("report_to").as_string(), "none");
  EXPECT_EQ(read.value("learning_rate").as_real(), 1e-4);
}

// Trackers in any order and form; equal choices have one spelling.
TEST_F(TrainingArguments, SeveralTrackers) {
  const auto trackers = [](const Strings& words) { return flags(words).value("report_to").as_string(); };
  EXPECT_EQ(trackers({"--report_to", "csv", "tensorboard"}), "tensorboard,csv");
  EXPECT_EQ(trackers({"--report_to", "CSV,tensorboard"}), "tensorboard,csv");
  EXPECT_EQ(trackers({"--report_to", "all"}), "tensorboard,csv");
  EXPECT_EQ(trackers({"--report_to", "none"}), "none");
  EXPECT_EQ(trackers({"--report_to", "wandb"}), "none");
  const Read both = read_file(file("b.json", R"({"report_to": ["csv", "tensorboard"]})"));
  EXPECT_EQ(both.value("report_to").as_string(), "tensorboard,csv");
  const Read read = read_file(file("a.json", R"({"report_to": ["csv"]})"));
  EXPECT_TRUE(reports_to(read.resolved.values.output, "csv"));
  EXPECT_FALSE(reports_to(read.resolved.values.output, "tensorboard"));
  EXPECT_FALSE(reports_to(read.resolved.values.output, "flow"));
}

TEST_F(TrainingArguments, SeveralFiles) {
  const auto list = [](const Strings& words) { return flags(words).value("train_file").as_string(); };
  EXPECT_EQ(list({"--train_file", "a.txt", "b.txt", "--seed", "3"}), "a.txt b.txt");
  EXPECT_EQ(list({"--train_file", "0.7", "a.jsonl", "0.3", "my folder"}), "0.7 a.jsonl 0.3 'my folder'");
  EXPECT_EQ(list({"--train_file", "my file.txt"}), "my file.txt");
  EXPECT_EQ(list({"--train_file", "my file.txt", "b"}), "'my file.txt' b");
  EXPECT_EQ(list({"--train_file", "a.json", "b.json"}), "a.json b.json");
  const std::string arguments = file("args.json", "{\"seed\": 5}");  // not in the list
  const Read read = flags({"--train_file", "a.txt", arguments});
  EXPECT_EQ(read.value("train_file").as_string(), "a.txt");
  EXPECT_EQ(read.value("args_file").as_string(), arguments);
  EXPECT_EQ(read_settings_file(file("mark.json", "\xEF\xBB\xBF{\"seed\": 6}"), "--args_file").at("seed").as_int(), 6);
}

TEST_F(TrainingArguments, NamesOfTrl) {
  const Read read =
      flags({"--max_length", "512", "--dataset_text_field", "body", "--lora_target_modules", "q_proj", "v_proj"});
  EXPECT_EQ(read.problems.lines, Strings{});
  EXPECT_EQ(read.resolved.values.data.max_seq_length, 512);
  EXPECT_EQ(read.resolved.values.data.text_column_name, "body");
  EXPECT_EQ(read.resolved.values.model.lora_target_modules, "q_proj,v_proj");
  const Read off = flags({"--use_peft", "true", "--use_peft", "false", "--lora_r", "8"});
  EXPECT_EQ(off.problems.lines, Strings{});
  EXPECT_EQ(off.resolved.values.model.lora_r, 0);
  EXPECT_EQ(off.origin("lora_r"), "--use_peft");
  EXPECT_EQ(flags({"--use_peft", "false", "--use_peft", "true"}).resolved.values.model.lora_r, 16);
  EXPECT_EQ(flags({"--model_type", "gpt2", "--model_type", "llama"}).value("config_name").as_string(), "llama");
  EXPECT_NE(flags({"--max_train_steps", "5"}).only_problem().find("did you mean --max_steps?"), std::string::npos);
  EXPECT_NE(flags({"--lora_ran", "5"}).only_problem().find("did you mean --lora_rank?"), std::string::npos);
  EXPECT_NE(flags({"--clip_grad", "5"}).only_problem().find("did you mean --max_grad_norm?"), std::string::npos);
}

TEST_F(TrainingArguments, PushingToTheHubIsAWarning) {
  EXPECT_EQ(flags({"--push_to_hub"}).only_note(),
            "--push_to_hub has no effect: nothing is uploaded; --output_dir is a complete Hugging Face folder, ready "
            "for `hf upload`");
}

TEST_F(TrainingArguments, FsdpConfigInAFileKeepsItsLines) {
  const std::string path = file("a.json",
                                "{\"fsdp\": \"full_shard auto_wrap\",\n\"fsdp_config\": "
                                "{\n\"fsdp_transformer_layer_cls_to_wrap\": [\"BertLayer\"],\n"
                                "\"fsdp_min_num_params\": 1e9}}");
  const Read read = read_file(path);
  EXPECT_EQ(read.problems.lines, Strings{});
  EXPECT_EQ(bare(read.origin("transformer_layer_cls_to_wrap")), "a.json:3");
  EXPECT_EQ(read.value("min_num_params").as_int(), 1'000'000'000);
  EXPECT_EQ(read_file(file("b.json", "{\"fsdp_config\": {\"min_num_params\": 5}}")).value("strategy").as_string(),
            "full_shard");
  const Read off = read_file(file("c.json", "{\"fsdp\": [],\n\"fsdp_config\": {\"min_num_params\": 5}}"));
  EXPECT_EQ(off.value("strategy").as_string(), "ddp");
  EXPECT_EQ(bare(off.only_note()), "c.json:2: fsdp_config has no effect: fsdp is off");
  EXPECT_TRUE(read_file(file("d.json", "{\"fsdp\": \"\", \"fsdp_config\": {\"min_num_params\": 0, \"xla\": false}}"))
                  .resolved.notes.empty());
}

TEST_F(TrainingArguments, ArgsFiles) {
  const std::string path = file("run.args",
                                "# a comment\n--learning_rate 1e-3 --fsdp \"full_shard auto_wrap\"\n--run_name 'my "
                                "run' --no_bf16 \\\n--seed 7\n");
  Read read = flags({path, "--seed", "8"});
  EXPECT_EQ(read.problems.lines, Strings{});
  EXPECT_EQ(read.value("seed").as_int(), 8);
  EXPECT_EQ(read.origin("seed"), "--seed");
  EXPECT_EQ(read.value("learning_rate").as_real(), 1e-3);
  EXPECT_EQ(bare(read.origin("learning_rate")), "run.args:2");
  EXPECT_EQ(read.value("fsdp").as_string(), "full_shard auto_wrap");
  EXPECT_EQ(read.value("run_name").as_string(), "my run");
  EXPECT_EQ(flags({"--args_file", path}).value("seed").as_int(), 7);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--learning_rte 3", "run.args:1: unknown flag --learning_rte; did you mean --learning_rate?"},
      {"\n--seed x", "run.args:2: --seed is 'x'; it must be an integer"},
      {"--seed", "run.args:1: --seed needs a value (N)"},
      {"stray", "run.args:1: unexpected argument 'stray': write settings as --name value"},
      {"other.json", "run.args:1: unexpected argument 'other.json': write settings as --name value"},
      {"--seed '3", "run.args:1:8: the quote ' is not closed"},
      {"--use_mps_device true",
       "run.args:1: --use_mps_device: Apple's GPUs are not supported: remove it, or use --device cpu"}};
  for (const auto& [text, message] : cases)
    EXPECT_EQ(bare(flags({file("run.args", text)}).only_problem()), message) << text;
  EXPECT_EQ(bare(flags({file("run.args", "--seed 1\n--seed 2")}).only_note()),
            "run.args:2: --seed is given twice: 2 is used, not 1");
  EXPECT_EQ(flags({"absent.args"}).only_problem(), "--args_file absent.args: no such file");
  EXPECT_EQ(bare(flags({file("run.args", "--dataloader_num_workers 3")}).only_note()),
            "--dataloader_num_workers (run.args:1) has no effect: rows are read from memory-mapped files, without "
            "worker processes");
  Problems problems;
  Strings words;
  for (const FileWord& word : read_file_words(file("q.args", "a\\ b \"c\\\"d\" 'e\\' #x\nf#g ''"), problems))
    words.push_back(word.text);
  EXPECT_EQ(words, (Strings{"a b", "c\"d", "e\\", "f#g", ""}));
}

TEST_F(TrainingArguments, Compat) {
  const std::vector<std::pair<std::string, std::string>> report = {{"v4", "tensorboard"}, {"v5", "none"}};
  for (const auto& [version, word] : report) {
    Read read = flags({"--compat", version});
    apply_compat(read.resolved);
    EXPECT_EQ(read.value("report_to").as_string(), word);
    EXPECT_EQ(read.origin("report_to"), concat("derived (--compat ", version, ")"));
    EXPECT_EQ(read.value("log_format").as_string(), version == "v4" ? "hf" : "hf5");
    EXPECT_EQ(read.value("logging_steps").as_int(), 500);
    EXPECT_EQ(read.value("output_dir").as_string(), "trainer_output");
  }
  Read given = flags({"--compat", "v4", "--report_to", "none", "--logging_steps", "3"});
  apply_compat(given.resolved);
  EXPECT_EQ(given.value("report_to").as_string(), "none");
  EXPECT_EQ(given.value("logging_steps").as_int(), 3);
  Read silent = flags({});
  apply_compat(silent.resolved);
  EXPECT_EQ(silent.value("logging_steps").as_int(), 500);
  for (const CompatDefault& row : compat_defaults())
    for (const std::string_view text : {row.v4, row.v5}) {
      RunConfig config;
      EXPECT_EQ(find_field(row.setting)->set(config, text), std::nullopt) << row.setting;
    }
  EXPECT_EQ(flags({"--compat", "v6"}).only_problem(), "--compat is 'v6'; it must be one of v4, v5 (did you mean v4?)");
}

}  // namespace
}  // namespace tessera::config
