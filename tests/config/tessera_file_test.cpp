// Our own settings file: flat, in sections, as printed by --print_config, and every possible mistake.

#include <tessera/config/resolve/tessera_file.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/flag_reader.h>
#include <tessera/config/resolve/resolve.h>
#include <tests/growth.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::config {
namespace {

using Strings = std::vector<std::string>;

Resolved defaults() {
  Resolved resolved;
  return resolved;
}

struct Read {
  Translation translation;
  Problems problems;
  Resolved resolved = defaults();

  std::string text(std::string_view setting) const { return dump_json(find_field(setting)->get(resolved.values)); }
  std::string only_problem() const {
    return problems.lines.size() == 1 ? problems.lines.front()
                                      : concat(problems.lines.size(), " problems: ", join(problems.lines, " | "));
  }
};

class TesseraFile : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = path_join(folder_.path(), name);
    write_file_atomically(path, text);
    return path;
  }
  static Read read(const std::string& path) {
    Read read;
    read.translation = read_tessera_file(path, read.problems);
    apply(read.translation, read.resolved);
    return read;
  }
  std::string bare(std::string text) const {
    const std::string prefix = folder_.path() + "/";
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
      text.erase(at, prefix.size());
    return text;
  }
  TemporaryFolder folder_;
};

TEST_F(TesseraFile, FlatAndInSections) {
  const std::string path = file("run.yaml",
                                "learning_rate: 3e-4\n"
                                "sharding:\n"
                                "  strategy: full_shard\n"
                                "  min_num_params: 1e8\n"
                                "output:\n"
                                "  report_to: none\n"
                                "  logging_steps: 0.1\n"
                                "gradient_checkpointing_kwargs: {every: 2}\n"
                                "bf16: yes\n"
                                "model:\n"
                                "data: {train_file: a.txt, block-size: 128}\n"
                                "run_name: null\n");
  const Read run = read(path);
  EXPECT_EQ(run.problems.lines, Strings{});
  EXPECT_EQ(run.text("learning_rate"), "3e-04");
  EXPECT_EQ(run.text("strategy"), "\"full_shard\"");
  EXPECT_EQ(run.text("min_num_params"), "100000000");
  EXPECT_EQ(run.text("report_to"), "\"none\"");
  EXPECT_EQ(run.text("logging_steps"), "0.1");
  EXPECT_EQ(run.resolved.values.optimization.gradient_checkpointing_kwargs, "{\"every\":2}");
  EXPECT_EQ(run.text("bf16"), "true");
  EXPECT_EQ(run.text("block_size"), "128");
  EXPECT_EQ(bare(run.resolved.origin("strategy").str()), "run.yaml:3");
  EXPECT_EQ(bare(run.resolved.origin("train_file").str()), "run.yaml:11");
  EXPECT_EQ(run.resolved.origin("run_name").str(), "default");
}

TEST_F(TesseraFile, JsonAndNamesOfOtherSystems) {
  const Read run = read(file(
      "run.json",
      R"({"$schema": "x", "evaluation_strategy": "epoch", "per-gpu-train-batch-size": 4, "dataloader_num_workers": 2,
 "warmup_steps": 0.1, "optim": "adamw_torch"})"));
  EXPECT_EQ(run.problems.lines, Strings{});
  EXPECT_EQ(run.text("eval_strategy"), "\"epoch\"");
  EXPECT_EQ(run.text("per_device_train_batch_size"), "4");
  EXPECT_EQ(run.text("warmup_ratio"), "0.1");
  EXPECT_EQ(run.text("optim"), "\"adamw\"");
  ASSERT_EQ(run.translation.notes.size(), 1u);
  EXPECT_EQ(bare(run.translation.notes[0]),
            "run.json:1: dataloader_num_workers has no effect: rows are read from memory-mapped files, without worker "
            "processes");
}

// Every setting alone, flat and in its section.
TEST_F(TesseraFile, EverySetting) {
  std::size_t given = 0;
  for (const Field& field : fields()) {
    if (field.name == "config" || field.name == "args_file") continue;
    const Value initial = field.get(RunConfig{});
    const std::string text = field.is_boolean()                ? initial.as_bool() ? "false" : "true"
                             : !field.rule.words.empty()       ? field.rule.words.back()
                             : field.name.ends_with("_kwargs") ? "a=1"
                             : initial.is_string()             ? "word"
                             : field.rule.most < 2             ? "0.25"
                             : field.name == "zero_stage"      ? "2"
                                                               : "9";
    for (const std::string& yaml : {concat("\n", field.name, ": ", text),
                                    concat(section_key(field.section), ":\n  ", field.name, ": \"", text, "\"")}) {
      const std::string path = file("one.yaml", yaml);
      const Read one = read(path);
      EXPECT_EQ(one.problems.lines, Strings{}) << yaml;
      EXPECT_EQ(one.resolved.origin(field.name).str(), path + ":2") << yaml;
      RunConfig config;
      EXPECT_EQ(field.set(config, text), std::nullopt) << field.name << " " << text;
      EXPECT_EQ(dump_json(field.get(one.resolved.values)), dump_json(field.get(config))) << yaml;
    }
    ++given;
  }
  EXPECT_EQ(given, fields().size() - 2);
}

TEST_F(TesseraFile, WhatPrintConfigPrintsGivesTheSameRun) {
  Resolved first = defaults();
  Problems problems;
  FlagReader(first, problems)
      .read(typed_words({"--learning_rate",
                         "3e-4",
                         "--fsdp",
                         "full_shard auto_wrap",
                         "--optim",
                         "lion_32bit",
                         "--logging_steps",
                         "0.25",
                         "--no_ddp_broadcast_buffers",
                         "--lr_scheduler_kwargs",
                         R"({"num_cycles": 2})",
                         "--cpu_offload",
                         "none",
                         "--save_total_limit",
                         "0",
                         "--greater_is_better",
                         "true",
                         "--seed",
                         "7",
                         "--config",
                         "before.yaml"}));
  ASSERT_EQ(problems.lines, Strings{});
  first.origins["strategy"] = Origin::derived("--fsdp full_shard");
  first.values.sharding.strategy = Strategy::full_shard;
  for (const int indent : {2, -1}) {
    const Read second = read(file("printed.json", dump_json(to_value(first), indent)));
    EXPECT_EQ(second.problems.lines, Strings{});
    EXPECT_EQ(second.translation.notes, Strings{});
    for (const Field& field : fields()) {
      const bool passed_over = field.name == "strategy" || field.name == "config";
      EXPECT_EQ(dump_json(field.get(second.resolved.values)),
                dump_json(field.get(passed_over ? RunConfig{} : first.values)))
          << field.name;
      const bool was_default = first.is_default(field.name) || passed_over;
      EXPECT_EQ(second.resolved.is_default(field.name), was_default) << field.name;
    }
  }
}

// The whole path: flags and files of other systems -> --print_config -> --config.
TEST_F(TesseraFile, PrintedRunsResolveToThemselves) {
  const auto no_environment = [](const std::string&) { return std::optional<std::string>(); };
  const std::string fsdp =
      file("fsdp.json", R"({"transformer_layer_cls_to_wrap": "GPT2Block", "backward_prefetch": "backward_post", )"
                        R"("activation_checkpointing": true})");
  const std::string args = file("args.yaml",
                                "learning_rate: 1e-3\nreport_to: [tensorboard, wandb]\nfsdp: full_shard\nfsdp_config: "
                                "{min_num_params: 0, forward_prefetch: false}\n");
  const std::vector<Strings> runs = {{"--max_steps", "5"},
                                     {"--fsdp", "full_shard auto_wrap offload", "--fsdp_config", fsdp, "--bf16"},
                                     {args, "--seed", "3", "--eval_steps", "0.5"},
                                     {"--zero_stage", "2", "--reduce_bucket_size", "1048576", "--warmup_steps", "0.1"},
                                     {"--compat", "v4", "--fsdp", "hybrid_shard", "--optim", "adafactor"}};
  for (const Strings& flags : runs) {
    const Resolved first = resolve_flags(flags, no_environment);
    const Resolved second =
        resolve_flags({"--config", file("printed.json", dump_json(to_value(first)))}, no_environment);
    for (const Field& field : fields())
      EXPECT_TRUE(field.name == "config" || field.name == "args_file" ||
                  dump_json(field.get(second.values)) == dump_json(field.get(first.values)))
          << field.name << " of " << join(flags, " ") << ": " << dump_json(field.get(second.values));
  }
}

TEST_F(TesseraFile, WrongFiles) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"learning_rte: 1e-4", "a.yaml:1:15: unknown argument learning_rte; did you mean learning_rate?"},
      {"sharding:\n  stratgy: ddp", "a.yaml:2:12: unknown argument stratgy; did you mean strategy?"},
      {"shardng:\n  strategy: ddp", "a.yaml:1:1: unknown section shardng; did you mean sharding?"},
      {"sharding:\n  learning_rate: 1",
       "a.yaml:2:18: learning_rate is in the section sharding; it belongs to optimization"},
      {"sharding: full_shard", "a.yaml:1:11: sharding is a section and must contain settings by name"},
      {"strategy: fullshard",
       "a.yaml:1:11: strategy is 'fullshard'; it must be one of ddp, zero1, zero2, zero3, full_shard, shard_grad_op, "
       "hybrid_shard, "
       "hybrid_shard_zero2, auto (did you mean full_shard?)"},
      {"bf16: maybe", "a.yaml:1:7: bf16 is 'maybe'; it must be true or false"},
      {"seed: [1]", "a.yaml:1:7: seed is a list with anything but words; use one value, or words"},
      {"seed: {value: 3}", "a.yaml:1:7: seed is '{\"value\":3}'; it must be an integer"},
      {"seed: {value: 3, origin: 7}", "a.yaml:1:7: seed is '{\"value\":3,\"origin\":7}'; it must be an integer"},
      {"seed: {value: x, origin: --seed}", "a.yaml:1:15: seed is 'x'; it must be an integer"},
      {"adam_beta1: 1", "a.yaml:1:13: adam_beta1 is 1; it must be at least 0 and less than 1"},
      {"logging_steps: 1.5",
       "a.yaml:1:16: logging_steps is 1.5; it must be a whole number of steps, or, between 0 and 1, a share of all "
       "steps"},
      {"config: other.yaml",
       "a.yaml:1:9: config: a file cannot name a file that is read before it: use the command line"},
      {"files:\n  args_file: other.json",
       "a.yaml:2:14: args_file: a file cannot name a file that is read before it: use the command line"},
      {"max_steps: 3\noptimization:\n  max_steps: 4",
       "a.yaml:3:14: max_steps 4 contradicts max_steps 3 on line 1; keep one of them"},
      {"optim: adalomo",
       "a.yaml:1:8: optim adalomo: it is not implemented: --optim sgd has no states, --optim adafactor small ones"},
      {"fsdp_config: {min_num_prams: 5}", "a.yaml:1:30: unknown key min_num_prams; did you mean min_num_params?"},
      {"- a", "a.yaml:1:1: expected settings such as learning_rate: 5e-5"},
      {"{seed: 1, seed: x}", "a.yaml:1:17: seed is 'x'; it must be an integer"},
      {"output_dir: " + std::string(70000, 'x'),
       "a.yaml:1:13: output_dir is a text of 70000 bytes; at most 65536 are read"}};
  for (const auto& [text, message] : cases) EXPECT_EQ(bare(read(file("a.yaml", text)).only_problem()), message) << text;
  EXPECT_EQ(read(file("a.yaml", "# nothing yet\n")).problems.lines, Strings{});
  EXPECT_EQ(read("absent.yaml").only_problem(), "--config absent.yaml: no such file");
  EXPECT_EQ(read(folder_.path()).only_problem(),
            concat("--config ", folder_.path(), " is a folder; expected a JSON or YAML file"));
  EXPECT_TRUE(bare(read(file("a.json", "{\"seed\": 1,}")).only_problem()).starts_with("a.json:1:"));
  const Read several = read(file("a.yaml", "learning_rte: 1\nseed: x\nsharding: 3\nbf16: maybe\n"));
  EXPECT_EQ(several.problems.lines.size(), 4u);
  EXPECT_TRUE(several.problems.doubtful.contains("learning_rate"));
}

// Refused in time linear in the file's size.
TEST_F(TesseraFile, HostileFilesAreRefusedAtOnce) {
  const auto texts = [](std::size_t size) {
    std::string yaml, aliases = "a: &a [x, x]\n", json = "{";
    for (int i = 0; yaml.size() < size; ++i) yaml += concat("learning_rat", i, ": [\n]\n");
    for (int i = 0; aliases.size() < size; ++i) aliases += concat("b", i, ": *a\n");
    for (int i = 0; json.size() < size; ++i) json += concat("\"seed", i, "\": {\"value\": 1, \"origin\": \"--seed\"},");
    return std::vector<std::pair<std::string, std::string>>{{"a.yaml", yaml},
                                                            {"b.yaml", aliases},
                                                            {"c.json", json},
                                                            {"d.yaml", std::string(size, '[')},
                                                            {"e.json", std::string(size, '{')},
                                                            {"f.yaml", std::string(size, '\0')}};
  };
  const auto small = texts(125'000), large = texts(1'000'000);
  for (std::size_t i = 0; i < large.size(); ++i) {
    const auto& [name, text] = large[i];
    const std::string path = file(name, text), eighth = file("eighth_" + name, small[i].second);
    Read refused;
    EXPECT_LE(tessera::testing::growth([&] { (void)read(eighth); }, [&] { refused = read(path); }),
              tessera::testing::linear_growth)
        << name;
    EXPECT_EQ(refused.problems.lines.size(), 1u) << name;
  }
  const std::string& yaml = large[0].second;
  const Read capped = read(file("g.yaml", yaml.substr(0, yaml.find("learning_rat1000:"))));
  EXPECT_EQ(capped.problems.lines.size(), 21u);
  EXPECT_EQ(bare(capped.problems.lines.back()), "g.yaml: 980 more arguments were not checked");
}

// Any values of settings are read, or refused with file and line.
RC_GTEST_PROP(TesseraFileProperties, AnySettingsAreReadOrRefused, ()) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "any.json");
  std::vector<Value::Member> members;
  for (const Field& field : fields()) {
    if (*rc::gen::inRange(0, 8) != 0) continue;
    const Value value = *rc::gen::element(Value(), Value::of(true), Value::of(-1), Value::of(0.5), Value::of("zero3"),
                                          Value::of(""), Value::make_array({Value::of("a")}),
                                          Value::make_object({{"value", Value::of(2)}, {"origin", Value::of("x")}}));
    members.emplace_back(std::string(field.name), value);
  }
  write_file_atomically(path, dump_json(Value::make_object(std::move(members))));
  Problems problems;
  const Translation translation = read_tessera_file(path, problems);
  for (const std::string& line : problems.lines) RC_ASSERT(line.starts_with(path + ":"));
  for (const FileSetting& setting : translation.settings) {
    RunConfig config;
    RC_ASSERT(!find_field(setting.name)->set(config, setting.text));
  }
}

}  // namespace
}  // namespace tessera::config
