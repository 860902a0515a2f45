// TrainingArguments: every possible mistake.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tests/config/training_args_read.h>
#include <tests/growth.h>

#include <utility>

namespace tessera::config {
namespace {

TEST_F(TrainingArguments, WrongFlags) {
  const std::vector<std::pair<Strings, std::string>> cases = {
      {{"--dataloader_num_wrokers", "4"},
       "unknown flag --dataloader_num_wrokers; did you mean --dataloader_num_workers?"},
      {{"--no_push_to_hub=true"}, "--no_push_to_hub takes no value; write --push_to_hub=true"},
      {{"--tp_size", "two"}, "--tp_size is 'two'; it must be an integer"},
      {{"--sharded_ddp", "simple"},
       "--sharded_ddp: transformers has removed FairScale as well: use --zero_stage 2 for simple and zero_dp_2, --fsdp "
       "full_shard for zero_dp_3"},
      {{"--source_max_len", "10"},
       "--source_max_len: prompt and answer share one limit: remove it, and use --max_seq_length (the sum of QLoRA's "
       "two)"},
      {{"--optim", "RMSPROP_BNB_8BIT"},
       "--optim RMSPROP_BNB_8BIT: 8-bit states are implemented for adamw and lion: --optim rmsprop keeps 32-bit "
       "states, --optim adamw_8bit two 8-bit ones"},
      {{"--optim", "adamw_torch_8bit"},
       "--optim adamw_torch_8bit: 8-bit states are implemented as in bitsandbytes: use --optim adamw_8bit"},
      {{"--optim", "ademamix_8bit"},
       "--optim ademamix_8bit: it is not implemented: --optim adamw is the closest alternative"},
      {{"--optim", "galore_adamw_8bit"},
       "--optim galore_adamw_8bit: projected gradients are not implemented: --lora_r 8 trains low-rank adapters, "
       "--optim adafactor has small states"},
      {{"--optim", "paged_ademamix_32bit"},
       "--optim paged_ademamix_32bit: it is not implemented: --optim adamw is the closest alternative"},
      {{"--optim", "galore_adamw"},
       "--optim galore_adamw: projected gradients are not implemented: --lora_r 8 trains low-rank adapters, --optim "
       "adafactor has small states"},
      {{"--optim", "admaw"},
       "--optim is 'admaw'; it must be one of adamw, adam, sgd, adagrad, lion, adafactor, lamb, lars, muon, "
       "rmsprop, adamw_8bit, lion_8bit (did you mean adamw?)"},
      {{"--lr_scheduler_type", "greedy"},
       "--lr_scheduler_type greedy: it is not implemented: reduce_lr_on_plateau also follows the evaluation loss"},
      {{"--report_to", "tensorbord"},
       "--report_to is 'tensorbord'; it must be one of tensorboard, csv, none, all (did you mean "
       "tensorboard?)"},
      {{"--lr_scheduler_kwargs", "absent.json"},
       "--lr_scheduler_kwargs absent.json: no such file (an object starts with '{')"},
      {{"--accelerator_config", R"({"split_batches": true})"},
       "--accelerator_config: split_batches: batch sizes are per process here: keep it false and divide "
       "--per_device_train_batch_size by the number of processes"},
      {{"--accelerator_config", R"({"even_batch": true})"},
       "--accelerator_config: unknown key even_batch; did you mean even_batches?"},
      {{"--accelerator_config", "{"},
       "--accelerator_config: accelerator_config:1:2: expected a key in double quotes, found the end of the file"},
      {{"--parallelism_config", R"({"cp_size": 2, "sp_size": 2})"},
       "--parallelism_config: sp_size 2 and cp_size 2 both divide the sequence: keep one of them"},
      {{"--parallelism_config", R"({"cp_handler": {"cp_comm_strategy": "ring"}})"},
       "--parallelism_config: cp_handler: cp_comm_strategy is one of allgather, alltoall"},
      {{"--parallelism_config", R"({"dp_shard_size": "many"})"},
       "--parallelism_config: dp_shard_size is 'many'; it must be a number of processes"},
      {{"--adafactor", "--optim", "sgd"},
       "--optim sgd contradicts --adafactor adafactor, given earlier; keep one of them"},
      {{"--use_cpu=maybe"}, "--use_cpu is 'maybe'; it must be true or false"},
      {{"--deepspeed", "--seed", "3"}, "--deepspeed needs a value (FILE|JSON)"},
      {{"a.json", "b.json"}, "unexpected argument 'b.json': a.json already contains the arguments"},
      {{"stray"}, "unexpected argument 'stray': write settings as --name value"},
      {{"--seed="}, "--seed has an empty value; remove the flag to keep the default"},
      {{"--parallelism_config.tp_size", "2"},
       "unknown flag --parallelism_config.tp_size; did you mean --parallelism_config?"}};
  for (const auto& [words, message] : cases) EXPECT_EQ(flags(words).only_problem(), message) << join(words, " ");
}

TEST_F(TrainingArguments, WrongFiles) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"learning_rte: 1e-4", "a.yaml:1:15: unknown argument learning_rte; did you mean learning_rate?"},
      {"learning_rate: fast", "a.yaml:1:16: learning_rate is 'fast'; it must be a number"},
      {"seed: 1.5", "a.yaml:1:7: seed is '1.5'; it must be an integer"},
      {"seed: 3\nlora_target_modules: [1, 2]",
       "a.yaml:2:22: lora_target_modules is a list with anything but words; use one value, or words"},
      {"max_steps: [1]", "a.yaml:1:12: max_steps is a list with anything but words; use one value, or words"},
      {"seed: {a: 1}", "a.yaml:1:7: seed is '{\"a\":1}'; it must be an integer"},
      {"eval_strategy: 'no'\nevaluation_strategy: steps",
       "a.yaml:2:22: evaluation_strategy steps contradicts eval_strategy no on line 1; keep one of them"},
      {"optim: adamw_torch_4bit",
       "a.yaml:1:8: optim adamw_torch_4bit: 4-bit states are not implemented: --optim adamw_8bit keeps 8-bit ones, "
       "--zero_stage 1 shards them over processes"},
      {"fsdp: full_shard\nfsdp_config:\n  min_num_prams: 5",
       "a.yaml:3:18: unknown key min_num_prams; did you mean min_num_params?"},
      {"fsdp_config:\n  xla: true\n  xla_fsdp_settings: {compute_type: bfloat16}",
       "a.yaml:3:37: unknown key compute_type; did you mean compute_dtype?"},
      {"args_file: b.json",
       "a.yaml:1:12: args_file: a file cannot name a file that is read before it: use the command line"},
      {"[1, 2]", "a.yaml:1:1: expected an object of arguments such as {\"learning_rate\": 5e-5}"},
      {"gradient_checkpointing: perhaps", "a.yaml:1:25: gradient_checkpointing is 'perhaps'; it must be true or false"},
      {"greater_is_better: 3", "a.yaml:1:20: greater_is_better is '3'; it must be one of auto, true, false"}};
  for (const auto& [text, message] : cases)
    EXPECT_EQ(bare(read_file(file("a.yaml", text)).only_problem()), message) << text;
  EXPECT_EQ(read_file("absent.json").only_problem(), "--args_file absent.json: no such file");
  EXPECT_EQ(bare(read_file(folder_.path()).only_problem()),
            concat("--args_file ", folder_.path(), " is a folder; expected a JSON or YAML file"));
  EXPECT_EQ(bare(read_file(file("ds.json",
                                "{\"zero_optimization\": {\"stage\": 2},\n\"train_micro_batch_size_per_gpu\": 2, "
                                "\"bf16\": {\"enabled\": true}}"))
                     .only_problem()),
            "ds.json: its keys are those of DeepSpeed's JSON: pass it as --deepspeed ds.json");
  EXPECT_TRUE(bare(read_file(file("acc.yaml", "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 1\n"))
                       .only_problem())
                  .ends_with(": pass it as --config_file acc.yaml"));
  // all problems are reported together
  EXPECT_EQ(read_file(file("a.yaml", "learning_rte: 1\nseed: x\npush_to_hub: true\n")).problems.lines.size(), 2u);
}

// Refused in time linear in the file's size.
TEST_F(TrainingArguments, HostileFilesAreRefusedAtOnce) {
  const auto grows = [](const auto& small, const auto& large) {
    return tessera::testing::growth(small, large) > tessera::testing::linear_growth;
  };
  std::string keys = "{";
  for (int i = 0; keys.size() < 1'000'000; ++i) keys += concat("\"learning_rat", i, "\": [],\n");
  keys += "\"x\": 1}";
  const auto first_keys = [&](std::size_t size) { return keys.substr(0, keys.rfind(',', size)) + "}"; };
  const std::string large = file("large.json", keys), large_eighth = file("large_eighth.json", first_keys(125'000)),
                    deep = file("deep.json", std::string(1'000'000, '[')),
                    deep_eighth = file("deep_eighth.json", std::string(125'000, '[')),
                    wide = file("wide.args", std::string(1'000'000, '"')),
                    wide_eighth = file("wide_eighth.args", std::string(125'000, '"'));
  Read read;
  for (const auto& [eighth, path] : {std::pair(large_eighth, large), {deep_eighth, deep}}) {
    EXPECT_FALSE(grows([&] { (void)read_file(eighth); }, [&] { read = read_file(path); })) << path;
    EXPECT_TRUE(read.only_problem().find("262144") != std::string::npos) << read.only_problem();
  }
  EXPECT_FALSE(grows([&] { (void)flags({wide_eighth}); }, [&] { read = flags({wide}); }));
  EXPECT_EQ(read.problems.lines.size(), 1u);
  // below the limit: parsed, but not every key is looked up
  const std::string small = file("small.json", first_keys(200'000)),
                    small_eighth = file("small_eighth.json", first_keys(25'000));
  EXPECT_FALSE(grows([&] { (void)read_file(small_eighth); }, [&] { read = read_file(small); }));
  EXPECT_EQ(read.problems.lines.size(), 21u);
  EXPECT_TRUE(read.problems.lines.back().ends_with(" more arguments were not checked")) << read.problems.lines.back();
  std::string words;
  for (int i = 0; words.size() < 200'000; ++i) words += concat("--lerning_rate", i, "\n");
  EXPECT_EQ(flags({file("many.args", words)}).problems.lines.size(), 21u);
}

RC_GTEST_PROP(TrainingArgumentsProperties, AnyWordsAreReadOrRefused, (const std::vector<std::string>& noise)) {
  Strings words;
  for (const std::string& word : noise) {
    const KeyRow& row = training_args_rows()[word.size() * 7 % training_args_rows().size()];
    words.push_back(word.size() % 3 == 0   ? word
                    : word.size() % 3 == 1 ? concat("--", row.key)
                                           : concat("--", row.key, "=", word));
  }
  const Read read = flags(words);
  for (const std::string& line : read.problems.lines) RC_ASSERT(!line.empty());
  for (const std::string& note : read.resolved.notes) RC_ASSERT(!note.empty());
}

}  // namespace
}  // namespace tessera::config
