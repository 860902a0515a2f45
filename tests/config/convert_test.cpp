// `tessera config convert`, default, update, to-fsdp2: the writers' output reads back to the same settings, and every
// loss is reported.

#include <tessera/config/convert/convert.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert_accelerate.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/fsdp_config.h>
#include <tessera/config/kinds/key_tables.h>
#include <tessera/config/resolve/resolve.h>

#include <algorithm>

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

Resolved resolve(const Words& flags) { return resolve_flags(flags, no_environment); }

/// The settings that the file resolves to when it is written and read again; `lost` are passed as flags, as the
/// warnings advise.
Resolved again(const Converted& converted, FileKind kind) {
  const TemporaryFolder folder;
  const std::string path =
      path_join(folder.path(), kind == FileKind::tessera || kind == FileKind::accelerate ? "file.yaml" : "file.json");
  write_file_atomically(path, file_text(converted.file, kind));
  Words flags = {std::string(kind_flag(kind)), path};
  for (const std::string& line : converted.lost) {
    const std::size_t blank = line.find(' '), colon = line.rfind(": ");
    std::string value = line.substr(blank + 1, colon - blank - 1);
    if (value.starts_with("'")) value = value.substr(1, value.size() - 2);
    flags.push_back(line.substr(0, blank) + "=" + value);
  }
  return resolve(flags);
}

std::string text(const Words& words) { return join(words, " "); }

const std::vector<Words>& runs() {
  static const std::vector<Words> all = {
      {},
      {"--bf16", "--num_processes", "2"},
      {"--compression_training",
       R"({"weight_quantization": {"shared_parameters": {"enabled": true}, "different_groups": {"wq1": {"params":
           {"start_bits": 8, "target_bits": 4}, "modules": ["c_attn", "mlp"]}}}})"},
      {"--progressive_layer_drop", R"({"enabled": true, "theta": 0.5, "gamma": 0.01})"},
      {"--fsdp", "full_shard", "--bf16"},
      {"--fsdp", "full_shard auto_wrap offload", "--num_processes", "4"},
      {"--fsdp", "shard_grad_op", "--fsdp_config",
       R"({"transformer_layer_cls_to_wrap": ["GPT2Block", "GPT2MLP"], "forward_prefetch": false})"},
      {"--fsdp", "hybrid_shard", "--num_processes", "4", "--shard_group_size", "2"},
      {"--strategy", "hybrid_shard_zero2", "--num_processes", "4", "--shard_group_size", "2"},
      {"--strategy", "hybrid_shard"},
      {"--pp_size", "2", "--num_processes", "4", "--gradient_accumulation_steps", "4"},
      {"--pp_size", "2", "--tp_size", "2", "--num_processes", "8", "--fsdp", "full_shard", "--pipeline_schedule",
       "interleaved_1f1b", "--pipeline_stages_per_rank", "2", "--pipeline_layout", "Et|t|t|tL", "--shard_group_size",
       "2", "--gradient_accumulation_steps", "4"},
      {"--pp_size", "2", "--zero_stage", "1", "--pipeline_schedule", "zb_h1", "--pipeline_group_size", "1"},
      {"--tp_size", "2", "--sequence_parallel"},
      {"--tp_size", "2", "--cp_size", "2", "--num_processes", "8"},
      {"--fsdp", "full_shard", "--cp_size", "2", "--cp_comm_type", "all_gather", "--num_processes", "4"},
      {"--fsdp", "hybrid_shard", "--cp_size", "2", "--tp_size", "2", "--shard_group_size", "4", "--num_processes",
       "16"},
      {"--fsdp", "full_shard", "--shard_group_size", "2", "--tp_size", "2", "--num_processes", "8"},
      {"--zero_stage", "2", "--cp_size", "4", "--cp_comm_type", "a2a", "--num_processes", "8"},
      {"--cp_size", "4", "--cp_comm_type", "a2a+p2p", "--cp_a2a_size", "2"},
      {"--fsdp_config", R"({"version": 2, "reshard_after_forward": false, "min_num_params": 1000})"},
      {"--fsdp_config",
       R"({"auto_wrap_policy": "NO_WRAP", "backward_prefetch": "BACKWARD_POST", "ignored_modules": "lm_head"})"},
      {"--strategy", "full_shard", "--auto_wrap_policy", "regex_wrap", "--wrap_pattern", "h\\.[0-9]"},
      {"--zero_stage", "1", "--max_grad_norm", "0.5"},
      {"--zero_stage", "2", "--cpu_offload", "optimizer", "--reduce_bucket_size", "1000000",
       "--gradient_accumulation_steps", "4"},
      {"--zero_stage", "3", "--cpu_offload", "params", "--stage3_param_persistence_threshold", "1000"},
      {"--zero_stage", "3", "--cpu_offload", "all", "--offload_folder", "/fast"},
      {"--fp16", "--loss_scale_window", "500", "--hysteresis", "2", "--zero_stage", "1"},
      {"--optim", "sgd", "--momentum", "0.9", "--nesterov", "--learning_rate", "0.1"},
      {"--optim", "lion", "--adam_beta2", "0.99"},
      {"--optim", "adam", "--adam_epsilon", "1e-6", "--weight_decay", "0.1"},
      {"--optim", "lamb", "--optim_args", "max_trust_ratio=5"},
      {"--optim", "lamb", "--optim_args", "eps=1e-6,max_trust_ratio=5,adapt_undecayed=true"},
      {"--optim", "lamb", "--optim_args", "eps=1e-6,min_trust_ratio=0.1,max_trust_ratio=5,adapt_undecayed=true"},
      {"--optim", "adagrad", "--optim_args", "eps=1e-8,lr_decay=0.1"},
      {"--optim", "adafactor"},
      {"--optim", "rmsprop", "--optim_args", "alpha=0.9,momentum=0.5,centered=true"},
      {"--optim", "adamw_bnb_8bit", "--optim_args", "eps=1e-6"},
      {"--optim", "lion_8bit"},
      {"--lr_scheduler_type", "cosine_with_restarts", "--lr_scheduler_kwargs", "num_cycles=3", "--warmup_steps", "10"},
      {"--lr_scheduler_type", "warmup_decay_lr", "--lr_scheduler_kwargs",
       R"({"warmup_max_lr": 0.001, "warmup_num_steps": 10})", "--max_steps", "100"},
      {"--warmup_ratio", "0.1", "--max_steps", "100", "--eval_steps", "5", "--save_strategy", "no"},
      {"--group_by_length", "--validation_file", "v.jsonl", "--report_to", "none"},
      {"--logging_steps", "0.5", "--greater_is_better", "true", "--metric_for_best_model", "loss", "--disable_tqdm"},
      {"--gradient_checkpointing", "--gradient_checkpointing_kwargs", "every=2", "--strategy", "full_shard"},
      {"--device", "cuda", "--num_processes", "2", "--backend", "nccl"},
      {"--device", "auto", "--num_processes", "2"},
      {"--device", "auto"},
      {"--output_dir", "a folder's name", "--run_name", "no", "--seed", "7", "--data_seed", "8"},
      {"--compat", "v4", "--max_steps", "3"},
      {"--fsdp", "full_shard", "--save_state_dict_type", "full", "--async_save", "false"},
      {"--fsdp", "hybrid_shard", "--save_state_dict_type", "LOCAL_STATE_DICT"},
      {"--zero_stage", "2", "--save_state_dict_type", "full", "--async_save_when_busy", "skip", "--nan_policy", "skip"},
  };
  return all;
}

TEST(Convert, EveryFormatIsReadBackToTheSameRun) {
  for (const Words& flags : runs())
    for (const FileKind kind :
         {FileKind::tessera, FileKind::accelerate, FileKind::deepspeed, FileKind::training_args}) {
      const Resolved first = resolve(flags);
      const Converted converted = convert(first, kind);
      const Resolved second = again(converted, kind);
      EXPECT_EQ(text(differences(first.values, second.values)), "")
          << kind_word(kind) << " of " << text(flags) << "\n"
          << file_text(converted.file, kind) << text(converted.lost);
    }
}

TEST(Convert, FromAnyFormatToAnyOther) {
  for (std::size_t i = 0; i < runs().size(); i += 3) {  // a third of them: the readers' own tests cover the rest
    const Words& flags = runs()[i];
    const Resolved described = resolve(flags);
    for (const FileKind by : {FileKind::accelerate, FileKind::deepspeed, FileKind::training_args}) {
      const Resolved first = again(convert(described, by), by);
      for (const FileKind to : {FileKind::tessera, FileKind::accelerate, FileKind::deepspeed, FileKind::training_args})
        EXPECT_EQ(text(differences(first.values, again(convert(first, to), to).values)), "")
            << kind_word(by) << " -> " << kind_word(to) << " of " << text(flags);
    }
  }
}

TEST(Convert, OurOwnFileLosesNothing) {
  for (const Words& flags : runs()) EXPECT_EQ(text(convert(resolve(flags), FileKind::tessera).lost), "") << text(flags);
}

TEST(Convert, AnFsdpConfig) {
  const Resolved first = resolve(
      {"--fsdp", "hybrid_shard", "--fsdp_config", R"({"min_num_params": 1000, "limit_all_gathers": false})", "--bf16"});
  const Converted converted = convert(first, FileKind::fsdp_config);
  EXPECT_EQ(text(converted.lost), "--bf16 true: an fsdp_config has no key for it");
  EXPECT_EQ(converted.file.at("sharding_strategy").as_string(), "HYBRID_SHARD");
  EXPECT_EQ(text(differences(first.values, again(converted, FileKind::fsdp_config).values)), "");
  EXPECT_THROW(convert(resolve({"--zero_stage", "1"}), FileKind::fsdp_config), InputError);
}

TEST(Convert, WhatAcceleratesFileSays) {
  const Converted c =
      convert(resolve({"--fsdp", "full_shard", "--bf16", "--num_processes", "2", "--learning_rate", "1e-3"}),
              FileKind::accelerate);
  EXPECT_EQ(text(c.lost), "--learning_rate 0.001: accelerate's file has no key for it");
  EXPECT_EQ(
      file_text(c.file, FileKind::accelerate),
      "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\ndowncast_bf16: "
      "'no'\nenable_cpu_affinity: false\n"
      "fsdp_config:\n  fsdp_activation_checkpointing: false\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_backward_prefetch: BACKWARD_PRE\n  fsdp_cpu_ram_efficient_loading: true\n  fsdp_forward_prefetch: true\n"
      "  fsdp_offload_params: false\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
      "  fsdp_sync_module_states: true\n  fsdp_use_orig_params: true\n  fsdp_version: 1\nmachine_rank: 0\n"
      "main_training_function: main\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 2\nrdzv_backend: static\n"
      "same_network: true\nuse_cpu: true\n");
}

TEST(Convert, NeededSettingsAreThoseThatWereGivenAndWhatFollowsOnlyFromDescriptions) {
  const auto needed = [](const Words& flags) {
    Words out;
    for (const auto& [name, value] : needed_settings(resolve(flags))) out.push_back(name + "=" + value);
    return text(out);
  };
  EXPECT_EQ(needed({}), "");
  EXPECT_EQ(needed({"--fsdp", "full_shard offload"}), "strategy=full_shard cpu_offload=all");
  EXPECT_EQ(needed({"--eval_steps", "5"}), "eval_steps=5") << "eval_strategy follows from it";
  EXPECT_EQ(needed({"--group_by_length"}), "train_sampling_strategy=group_by_length");
}

TEST(Convert, KindsAreGuessedFromTheKeys) {
  const auto kind = [](const char* json) -> std::string {
    const auto guessed = guess_kind(parse_json(json, "file"));
    return guessed ? std::string(kind_word(*guessed)) : "?";
  };
  EXPECT_EQ(kind(R"({"distributed_type": "FSDP", "num_processes": 2})"), "accelerate");
  EXPECT_EQ(kind(R"({"fsdp_config": {}, "compute_environment": "LOCAL_MACHINE"})"), "accelerate");
  EXPECT_EQ(kind(R"({"train_batch_size": 8})"), "deepspeed");
  EXPECT_EQ(kind(R"({"zero_optimzation": {"stage": 2}})"), "deepspeed") << "misspelt";
  EXPECT_EQ(kind(R"({"fsdp_transformer_layer_cls_to_wrap": "GPT2Block"})"), "fsdp_config");
  EXPECT_EQ(kind(R"({"backward_prefetch": "backward_pre", "forward_prefetch": true})"), "fsdp_config");
  EXPECT_EQ(kind(R"({"output_dir": "out", "learning_rate": 1e-3, "push_to_hub": false})"), "training_args");
  EXPECT_EQ(kind(R"({"optimization": {"learning_rate": 1e-3}})"), "tessera");
  EXPECT_EQ(kind(R"({"zzz": 1})"), "?");
  EXPECT_EQ(kind("[]"), "?");
  EXPECT_EQ(kind(R"({"gradient_accumulation_steps": 4})"), "deepspeed");
  EXPECT_EQ(kind_word(*guess_kind(parse_yaml("gradient_accumulation_steps: 4\n", "gb.yaml"))), "training_args")
      << "DeepSpeed's files are JSON";
}

TEST(DumpYaml, WhatAnyReaderTakesForTheSame) {
  const std::string json =
      R"({"no": "no", "text": "plain words", "empty": "", "number": "1e8", "date": "2024-01-01", "sexagesimal": "1:30",
    "colon": "a: b", "hash": "a #b", "dash": "- a", "quote": "it's", "lines": "a\nb", "star": "*", "tilde": "~",
    "space": " a",
    "real": 1e-08, "whole": 100000000, "one": 1.0, "null": null, "yes": true, "list": ["a", "on", 3], "none": {},
    "nothing": [],
    "deep": {"a": {"b": [{"c": 1}, []]}}})";
  const Value value = parse_json(json, "json");
  const std::string yaml = dump_yaml(value);
  EXPECT_EQ(dump_json(parse_yaml(yaml, "yaml"), -1), dump_json(value, -1)) << yaml;
  EXPECT_NE(yaml.find("'no': 'no'"), std::string::npos) << yaml;
  EXPECT_NE(yaml.find("real: 1.0e-08"), std::string::npos) << "a real to YAML 1.1, too\n" << yaml;
}

RC_GTEST_PROP(DumpYaml, AnyTextIsReadBack, ()) {
  const std::string text = *rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::inRange<char>(' ', '~'), rc::gen::element('\n', '\t', ':', '-', '#', '\'', '"')));
  const Value value = Value::make_object({{"key", Value::of(text)}, {"list", Value::make_array({Value::of(text)})}});
  RC_ASSERT(dump_json(parse_yaml(dump_yaml(value), "yaml"), -1) == dump_json(value, -1));
}

// ---- accelerate's own file -----------------------------------------------------------------------------------------

TEST(ToFsdp2, AsAccelerateDoesWithoutItsBugs) {
  const auto converted = [](const char* yaml, Words* notes = nullptr) {
    Words said;
    const std::string out = dump_yaml(to_fsdp2(parse_yaml(yaml, "a.yaml"), said));
    if (notes != nullptr) *notes = said;
    return out;
  };
  Words notes;
  EXPECT_EQ(converted("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n  fsdp_sharding_strategy: FULL_SHARD\n "
                      " fsdp_backward_prefetch: BACKWARD_PRE\n"
                      "  fsdp_use_orig_params: true\n  fsdp_sync_module_states: true\n  fsdp_forward_prefetch: false\n "
                      " fsdp_offload_params: true\n",
                      &notes),
            "distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true\n  fsdp_reshard_after_forward: true\n  "
            "fsdp_version: 2\n");
  EXPECT_EQ(notes.size(), 4u) << join(notes, "\n");
  EXPECT_EQ(notes.at(0), "a.yaml:5: fsdp_backward_prefetch is dropped: version 2 has no such key");
  // numbers, which accelerate passes on as "2"
  EXPECT_NE(converted("fsdp_config:\n  fsdp_sharding_strategy: 2\n").find("fsdp_reshard_after_forward: false"),
            std::string::npos);
  EXPECT_NE(converted("fsdp_config:\n  sharding_strategy: shard_grad_op\n").find("fsdp_reshard_after_forward: false"),
            std::string::npos);
  EXPECT_NE(converted("fsdp_config:\n  fsdp_reshard_after_forward: SHARD_GRAD_OP\n")
                .find("fsdp_reshard_after_forward: false"),
            std::string::npos);
  EXPECT_NE(converted("fsdp_config:\n  fsdp_reshard_after_forward: true\n").find("fsdp_reshard_after_forward: true"),
            std::string::npos);
  // the replicas of a hybrid strategy, which accelerate loses
  EXPECT_EQ(
      converted("num_machines: 2\nnum_processes: 8\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n", &notes),
      "fsdp_config:\n  fsdp_reshard_after_forward: true\n  fsdp_version: 2\nnum_machines: 2\nnum_processes: "
      "8\nparallelism_config:\n"
      "  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 4\n");
  EXPECT_EQ(join(notes),
            "a.yaml:4: the hybrid strategy's replicas are kept as parallelism_config: 2 replicas, each sharded over 4 "
            "processes");
  EXPECT_NE(converted("fsdp_config:\n  fsdp_sharding_strategy: 5\n", &notes).find("fsdp_reshard_after_forward: false"),
            std::string::npos);
  EXPECT_NE(join(notes).find("with one machine that is full sharding"), std::string::npos);
  EXPECT_NE(converted("fsdp_config:\n  fsdp_min_num_params: 1e8\n").find("fsdp_min_num_params: 100000000"),
            std::string::npos);
  // nothing to do
  EXPECT_EQ(converted("fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n", &notes),
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n");
  EXPECT_EQ(join(notes), "a.yaml:2: fsdp_version is already 2: nothing to convert");
  EXPECT_EQ(converted("distributed_type: MULTI_GPU\n", &notes), "distributed_type: MULTI_GPU\n");
  const auto error = [&](const char* yaml) -> std::string {
    try {
      converted(yaml);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error("fsdp_config:\n  fsdp_sharding_strategy: 7\n"),
            "a.yaml:2:27: fsdp_sharding_strategy is '7'; it must be one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, "
            "HYBRID_SHARD, HYBRID_SHARD_ZERO2, or 1 to 5");
  EXPECT_EQ(error("num_machines: 2\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"),
            "a.yaml:3:27: the hybrid strategy's replicas become parallelism_config, whose sizes are derived from "
            "num_processes / num_machines (2); "
            "num_processes is missing");
  EXPECT_EQ(error("fsdp_config: 3\n"), "a.yaml:1:14: fsdp_config must contain keys such as fsdp_version");
}

TEST(ToFsdp2, MeansTheSameRun) {
  const TemporaryFolder folder;
  for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "1", "2", "HYBRID_SHARD", "5"}) {
    const std::string yaml = concat(
        "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 4\nfsdp_config:\n  fsdp_sharding_strategy: ", strategy,
        "\n");
    Words notes;
    const std::string old_file = path_join(folder.path(), "old.yaml"), new_file = path_join(folder.path(), "new.yaml");
    write_file_atomically(old_file, yaml);
    write_file_atomically(new_file, dump_yaml(to_fsdp2(parse_yaml(yaml, "a"), notes)));
    const Resolved first = resolve({"--config_file", old_file}), second = resolve({"--config_file", new_file});
    // version 2 writes SHARD_GRAD_OP as "do not reshard after forward", and it records the size of a host's groups
    for (const std::string& name : differences(first.values, second.values))
      EXPECT_TRUE(name == "reshard_after_forward" || name == "shard_group_size" || name == "strategy")
          << strategy << ": " << name;
    EXPECT_EQ(std::string(strategy) == "HYBRID_SHARD" || std::string(strategy) == "5",
              row_of(second.values.sharding.strategy).shard_group == ShardGroup::host)
        << strategy;
  }
}

TEST(UpdateAccelerate, OldFormsAndDefaults) {
  Words notes;
  const Value file = update_accelerate_file(
      parse_yaml("fp16: true\ndynamo_backend: 'NO'\ndistributed_type: NO\nfsdp_config: {}\n", "a.yaml"), notes);
  EXPECT_EQ(dump_yaml(file),
            "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: 'NO'\nenable_cpu_affinity: "
            "false\nmachine_rank: 0\n"
            "main_training_function: main\nmixed_precision: fp16\nnum_machines: 1\nnum_processes: 1\nrdzv_backend: "
            "static\nsame_network: false\nuse_cpu: false\n");
  EXPECT_EQ(notes.at(0), "a.yaml:1: fp16 is replaced by mixed_precision: fp16");
  Words none;
  EXPECT_EQ(dump_yaml(update_accelerate_file(file, none)), dump_yaml(file)) << "a second time changes nothing";
  EXPECT_TRUE(none.empty()) << join(none, "\n");
  EXPECT_THROW(update_accelerate_file(parse_yaml("mixed_precision: bf16", "a"), none), InputError);
}

TEST(DefaultAccelerate, FileAndPath) {
  EXPECT_EQ(new_accelerate_file("bf16", 0).at("use_cpu").as_bool(), true);
  EXPECT_EQ(new_accelerate_file("BF16", 4).at("distributed_type").as_string(), "MULTI_GPU");
  EXPECT_EQ(new_accelerate_file("no", 4).at("num_processes").as_int(), 4);
  EXPECT_EQ(new_accelerate_file("fp8", 0).at("mixed_precision").as_string(), "fp8");
  EXPECT_THROW(new_accelerate_file("half", 0), InputError);
  const auto path = [](std::map<std::string, std::string> variables) {
    return default_accelerate_path([variables](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_EQ(path({{"HF_HOME", "/hf"}, {"HOME", "/u"}}), "/hf/accelerate/default_config.yaml");
  EXPECT_EQ(path({{"XDG_CACHE_HOME", "/c"}, {"HOME", "/u"}}), "/c/huggingface/accelerate/default_config.yaml");
  EXPECT_EQ(path({{"HOME", "/u"}}), "/u/.cache/huggingface/accelerate/default_config.yaml");
  EXPECT_EQ(path({{"HF_HOME", "~/x"}, {"HOME", "/u"}}), "/u/x/accelerate/default_config.yaml");
  EXPECT_THROW(path({}), InputError);
}

TEST(KeyTables, EveryRowSaysWhatBecomesOfIt) {
  std::size_t count = 0;
  for (const KeyTable& table : key_tables())
    for (const KeyRow& row : table.rows) {
      ++count;
      EXPECT_FALSE(row.key.empty()) << table.title;
      EXPECT_TRUE(row.effect == Effect::acts || !row.why.empty()) << row.key << " needs a reason";
      EXPECT_TRUE(row.setting.empty() || find_field(row.setting) != nullptr) << row.key << " -> " << row.setting;
    }
  EXPECT_GT(count, 500u);
  const std::string page = key_tables_markdown();
  EXPECT_NE(page.find("| `zero_optimization.stage` | acts: `zero_stage` |"), std::string::npos);
  EXPECT_EQ(page.find("see the section |"), std::string::npos) << "each row repeats the reason of its section";
}

// One test per row of fsdp_config; the other formats have tests of their own.
TEST(KeyTables, EveryKeyOfFsdpConfigDoesWhatItsRowSays) {
  for (const KeyRow& row : fsdp_keys()) {
    bool as_told = false;
    for (const char* value : {"true", "2", "\"backward_post\"", "\"bf16\"", "\"size_based_wrap\"", "\"full_shard\"",
                              "\"sharded_state_dict\"", "[\"GPT2Block\"]", "{}", "{\"reshard_after_forward\": true}"}) {
      Problems problems;
      const Translation read = read_fsdp_config(
          concat(row.key.starts_with("xla_") ? "{\"xla\": true, \"fsdp_" : "{\"fsdp_", row.key, "\": ", value, "}"),
          problems);
      const bool named = std::any_of(problems.lines.begin(), problems.lines.end(),
                                     [&](const std::string& line) { return line.find(row.key) != std::string::npos; });
      if (row.effect == Effect::refused) as_told |= named;
      if (row.effect == Effect::ignored) as_told |= problems.lines.empty() && read.settings.empty();
      if (row.effect == Effect::acts)
        as_told |= problems.lines.empty() &&
                   std::any_of(read.settings.begin(), read.settings.end(),
                               [&](const FileSetting& setting) { return setting.name == row.setting; });
    }
    EXPECT_TRUE(as_told) << row.key;
  }
}

}  // namespace
}  // namespace tessera::config
