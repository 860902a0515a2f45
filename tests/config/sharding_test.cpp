// --fsdp, --fsdp_config, --zero_stage, --strategy, --cpu_offload: their combined result and their contradictions.

#include <tessera/config/hf/sharding.h>
#include <tessera/config/resolve/validate_sharding.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/resolve/resolve.h>

#include <algorithm>

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;
using Kind = layout::WrapPolicy::Kind;

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }
Resolved read(const Words& arguments) { return resolve_flags(arguments, no_environment); }

Words problems_of(const Words& arguments) {
  Problems problems;
  const Resolved resolved = resolve_flags(arguments, problems, no_environment);
  validate_sharding(resolved, problems);
  return problems.lines;
}
std::string problem_of(const Words& arguments) {
  const Words lines = problems_of(arguments);
  return lines.size() == 1 ? lines.front() : concat(lines.size(), " problems: ", join(lines, " | "));
}

TEST(Sharding, NothingGivenIsDdp) {
  const Resolved resolved = read({});
  EXPECT_EQ(resolved.values.sharding.strategy, Strategy::ddp);
  EXPECT_EQ(resolved.origin("strategy").str(), "default");
  EXPECT_TRUE(resolved.notes.empty());
}

TEST(Sharding, TheWordAutoIsASettingOfItsOwn) {
  const Resolved word = read({"--strategy", "AUTO"});
  EXPECT_TRUE(word.values.sharding.auto_strategy);
  EXPECT_EQ(word.values.sharding.strategy, Strategy::ddp);
  EXPECT_EQ(word.origin("auto_strategy").str(), "--strategy");
  EXPECT_TRUE(word.is_default("strategy"));
  EXPECT_FALSE(read({"--strategy", "auto", "--strategy", "zero2"}).values.sharding.auto_strategy);
  EXPECT_TRUE(read({"--strategy", "zero2", "--strategy", "auto"}).values.sharding.auto_strategy);
  const Resolved both = read({"--auto_strategy", "--fsdp", "full_shard"});
  EXPECT_TRUE(both.values.sharding.auto_strategy);
  EXPECT_EQ(both.values.sharding.strategy, Strategy::full_shard);
  EXPECT_EQ(problem_of({"--strategy", "auto", "--fsdp", "full_shard"}),
            "--strategy auto, --fsdp full_shard: either the planner or you choose the strategy; keep one of them (with "
            "--auto_strategy and a strategy, the planner chooses the rest)");
}

TEST(Sharding, EveryNameOfAStrategy) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--fsdp", "full_shard"}, "full_shard"},
      {{"--fsdp", "full_shard auto_wrap"}, "full_shard"},
      {{"--fsdp", "full_shard", "auto_wrap"}, "full_shard"},
      {{"--fsdp", "full shard"}, "full_shard"},
      {{"--fsdp=FULL_SHARD,auto_wrap"}, "full_shard"},
      {{"--fsdp", "['full_shard', 'auto_wrap']"}, "full_shard"},
      {{"--fsdp", "true"}, "full_shard"},
      {{"--fsdp", "false"}, "ddp"},
      {{"--fsdp", "shard_grad_op"}, "shard_grad_op"},
      {{"--fsdp", "hybrid_shard"}, "hybrid_shard"},
      {{"--fsdp", "hybrid_shard_zero2"}, "hybrid_shard_zero2"},
      {{"--fsdp", "no_shard"}, "ddp"},
      {{"--zero_stage", "0"}, "ddp"},
      {{"--zero_stage", "1"}, "zero1"},
      {{"--zero-stage=2"}, "zero2"},
      {{"--zero_stage", "3"}, "zero3"},
      {{"--strategy", "FULL_SHARD"}, "full_shard"},
      {{"--strategy", "2"}, "shard_grad_op"},
      {{"--fsdp_sharding_strategy", "HYBRID_SHARD"}, "hybrid_shard"},
      {{"--fsdp_config", R"({"sharding_strategy": "NO_SHARD"})"}, "ddp"},
      {{"--fsdp_config", R"({"fsdp_sharding_strategy": 5})"}, "hybrid_shard_zero2"},
      {{"--fsdp_config", R"({"min_num_params": 1000})"}, "full_shard"}};
  for (const auto& [arguments, strategy] : cases) {
    EXPECT_EQ(problems_of(arguments), Words{}) << join(arguments, " ");
    EXPECT_EQ(word_of(read(arguments).values.sharding.strategy), strategy) << join(arguments, " ");
  }
}

TEST(Sharding, OriginsSayWhichWords) {
  const Resolved resolved =
      read({"--fsdp", "full_shard auto_wrap offload", "--fsdp_config",
            R"({"forward_prefetch": false, "limit_all_gathers": true})", "--no_limit_all_gathers"});
  EXPECT_EQ(resolved.origin("strategy").str(), "derived (--fsdp full_shard)");
  EXPECT_EQ(resolved.values.sharding.cpu_offload, Offload::all);
  EXPECT_EQ(resolved.origin("cpu_offload").str(), "derived (--fsdp offload)");
  EXPECT_FALSE(resolved.values.sharding.forward_prefetch);
  EXPECT_EQ(resolved.origin("forward_prefetch").str(), "fsdp_config:1");
  EXPECT_FALSE(resolved.values.sharding.limit_all_gathers);  // the flag overrides the file
  EXPECT_EQ(resolved.origin("limit_all_gathers").str(), "--no_limit_all_gathers");
  EXPECT_EQ(read({"--fsdp_config", "{}"}).origin("strategy").str(), "derived (fsdp_config is given)");
}

TEST(Sharding, NamesOfOneStrategyAgree) {
  EXPECT_EQ(problems_of({"--fsdp", "full_shard", "--zero_stage", "3", "--strategy", "zero3", "--fsdp_config",
                         R"({"sharding_strategy": 1})"}),
            Words{});
}

TEST(Sharding, ContradictionsAreListedTogether) {
  EXPECT_EQ(problems_of({"--fsdp", "full_shard offload", "--zero_stage", "2", "--strategy", "zero1", "--cpu_offload",
                         "optimizer", "--fp16", "--bf16", "--fsdp_config",
                         R"({"sharding_strategy": "SHARD_GRAD_OP", "min_num_params": 1e9, )"
                         R"("transformer_layer_cls_to_wrap": "GPT2Block"})"}),
            (Words{"fsdp_config:1 sharding_strategy SHARD_GRAD_OP, --fsdp full_shard, --zero_stage 2, --strategy "
                   "zero1: these specify different strategies; "
                   "keep one of them",
                   "--fsdp offload, --cpu_offload optimizer: these specify different places; keep one of them",
                   "--fp16 and --bf16 exclude each other: use only one of them"}));
}

TEST(Sharding, Words) {
  EXPECT_EQ(problem_of({"--fsdp", "ful_shard"}),
            "--fsdp: unknown word 'ful_shard'; did you mean full_shard? (the words are full_shard, shard_grad_op, "
            "hybrid_shard, hybrid_shard_zero2, "
            "no_shard, auto_wrap, size_based_auto_wrap, transformer_based_auto_wrap, offload)");
  EXPECT_EQ(problem_of({"--fsdp", "offload"}), "--fsdp offload is not a strategy: write --fsdp \"full_shard offload\"");
  EXPECT_EQ(problem_of({"--fsdp", "full_shard shard_grad_op"}),
            "--fsdp full_shard, --fsdp shard_grad_op: these specify different strategies; keep one of them");
}

// The words of accelerate's launcher and of Hugging Face's guide work as flags.
TEST(Sharding, TheGuidesWordsAreFlags) {
  const Resolved resolved =
      read({"--fsdp", "full_shard", "--fsdp_offload_params", "true", "--fsdp_wrap_policy", "SIZE_BASED_WRAP",
            "--min_num_param", "1000", "--fsdp_backward_prefetch_policy", "BACKWARD_POST", "--fsdp_state_dict_type",
            "FULL_STATE_DICT", "--num_gpus", "2", "--fsdp_use_orig_params", "true"});
  const ShardingConfig& sharding = resolved.values.sharding;
  EXPECT_EQ(sharding.cpu_offload, Offload::all);
  EXPECT_EQ(sharding.auto_wrap_policy, AutoWrap::size_based);
  EXPECT_EQ(sharding.min_num_params, 1000);
  EXPECT_EQ(sharding.backward_prefetch, layout::BackwardPrefetch::post);
  EXPECT_EQ(resolved.values.output.save_state_dict_type, StateDictType::full);
  EXPECT_EQ(resolved.values.parallel.num_processes, 2);
  EXPECT_EQ(read({"--fsdp_offload_params", "false"}).values.sharding.cpu_offload, Offload::none);
}

// PyTorch's FSDP accepts NO_SHARD with offload, and so does the guide's file with its strategy 1 changed to 3.
TEST(Sharding, OffloadOfNoShardIsThatOfTheOptimizer) {
  const TemporaryFolder folder;
  const std::string yaml = path_join(folder.path(), "a.yaml");
  write_file_atomically(
      yaml, "distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true\n  fsdp_sharding_strategy: 3\n");
  for (const Words& flags : {Words{"--fsdp", "no_shard offload"}, Words{"--config_file", yaml}}) {
    Problems problems;
    const Resolved resolved = resolve_flags(flags, problems, no_environment);
    EXPECT_EQ(problems.lines, Words{});
    EXPECT_EQ(resolved.values.sharding.cpu_offload, Offload::optimizer);
    EXPECT_EQ(resolved.values.sharding.strategy, Strategy::ddp);
    EXPECT_TRUE(std::any_of(resolved.notes.begin(), resolved.notes.end(), [](const std::string& note) {
      return note.find("NO_SHARD") != std::string::npos && note.find("keeps whole parameters") != std::string::npos;
    }));
  }
  EXPECT_EQ(
      problem_of({"--strategy", "ddp", "--cpu_offload", "all"}),
      "--cpu_offload all needs a strategy that divides parameters (--fsdp full_shard, --zero_stage 3); the strategy "
      "ddp (--strategy) keeps them whole. --cpu_offload optimizer works with every strategy");
}

TEST(Sharding, WrapPolicies) {
  const Words blocks = {"Gpt2Block"}, modules = {"h.0", "h.0.attn", "h.0.mlp", "wte"};
  const auto policy = [&](const Words& arguments) {
    return wrap_policy(read(arguments).values.sharding, blocks, modules);
  };
  EXPECT_EQ(policy({}).kind, Kind::by_class);
  EXPECT_EQ(policy({}).classes, blocks);
  EXPECT_EQ(policy({"--transformer_layer_cls_to_wrap", "GPT2Block, LlamaDecoderLayer"}).classes,
            (Words{"GPT2Block", "LlamaDecoderLayer"}));
  EXPECT_EQ(policy({"--fsdp", "full_shard auto_wrap", "--min_num_params", "5000"}).kind, Kind::by_size);
  EXPECT_EQ(policy({"--fsdp", "full_shard auto_wrap", "--min_num_params", "5000"}).min_num_params, 5000);
  EXPECT_EQ(policy({"--fsdp", "full_shard size_based_auto_wrap"}).min_num_params, 100'000'000);
  EXPECT_EQ(policy({"--fsdp_min_num_params", "0"}).kind, Kind::by_class);
  EXPECT_EQ(policy({"--wrap_pattern", "h\\..*"}).kind, Kind::by_regex);
  EXPECT_EQ(policy({"--auto_wrap_policy", "NO_WRAP"}).kind, Kind::none);
  EXPECT_EQ(policy({"--auto_wrap_policy", "SIZE_BASED_WRAP", "--transformer_layer_cls_to_wrap", "X"}).kind,
            Kind::by_size);  // `kind` decides
  EXPECT_EQ(policy({"--ignored_modules", "h\\.0\\..*"}).ignored_modules, (Words{"h.0.attn", "h.0.mlp"}));
  EXPECT_THROW(policy({"--ignored_modules", "absent"}), InputError);
  EXPECT_THROW(policy({"--ignored_modules", "("}), InputError);
  EXPECT_EQ(wrap_policy({}, {}, {}).kind, Kind::none);  // a model without blocks
}

// The example of Hugging Face's distributed-training guide sets both classes and a size.
TEST(Sharding, ClassesBeatSize) {
  const Words guide = {"--fsdp", "full_shard auto_wrap", "--fsdp_config",
                       R"({"fsdp_min_num_params": 1e9, "fsdp_transformer_layer_cls_to_wrap": ["GPT2Block"], )"
                       R"("fsdp_backward_prefetch": "backward_pre"})"};
  const Resolved resolved = read(guide);
  EXPECT_EQ(resolved.values.sharding.auto_wrap_policy, AutoWrap::transformer_based);
  EXPECT_EQ(resolved.origin("auto_wrap_policy").str(), "derived (fsdp_config:1 transformer_layer_cls_to_wrap)");
  EXPECT_EQ(resolved.notes, (Words{"fsdp_config:1: min_num_params 1000000000 has no effect: "
                                   "transformer_layer_cls_to_wrap (fsdp_config:1) selects the blocks"}));
  EXPECT_EQ(read({"--fsdp", "full_shard", "--min_num_params", "5", "--transformer_layer_cls_to_wrap", "GPT2Block"})
                .values.sharding.auto_wrap_policy,
            AutoWrap::transformer_based);
  const Resolved by_size =
      read({"--fsdp", "full_shard", "--fsdp_config",
            R"({"min_num_params": 5, "auto_wrap_policy": "SIZE_BASED_WRAP", "transformer_layer_cls_to_wrap": "X"})"});
  EXPECT_EQ(by_size.values.sharding.auto_wrap_policy, AutoWrap::size_based);
}

TEST(Sharding, FsdpAsABoolean) {
  for (const char* yes : {"True", "true", "1", "yes"})
    EXPECT_EQ(read({"--fsdp", yes}).values.sharding.strategy, Strategy::full_shard) << yes;
  EXPECT_EQ(read({"--fsdp"}).values.sharding.strategy, Strategy::full_shard);
  EXPECT_EQ(read({"--fsdp", "--bf16"}).values.sharding.strategy, Strategy::full_shard);
  EXPECT_EQ(read({"--fsdp", "True", "auto_wrap"}).values.sharding.strategy, Strategy::full_shard);
  for (const char* no : {"False", "false", "0", ""})
    EXPECT_EQ(read({"--fsdp", no}).values.sharding.strategy, Strategy::ddp) << no;
  const Resolved off = read({"--fsdp", "False", "--fsdp_config", R"({"min_num_params": 5, "offload_params": true})"});
  EXPECT_EQ(off.values.sharding.strategy, Strategy::ddp);
  EXPECT_EQ(off.values.sharding.cpu_offload, Offload::none);
  EXPECT_EQ(off.notes, Words{"--fsdp_config has no effect: --fsdp is False"});
  EXPECT_EQ(problem_of({"--fsdp", "False", "--fsdp_config", R"({"min_num_prams": 5})"}),
            "0 problems: ");  // not read
}

// transformers 4 and 5 treat FSDP version 2, a missing `fsdp` and a missing auto_wrap differently.
TEST(Sharding, Compat) {
  const Words version2 = {"--fsdp", "full_shard auto_wrap", "--fsdp_config", R"({"fsdp_version": 2})"};
  const auto with = [](Words words, const char* version) {
    words.insert(words.end(), {"--compat", version});
    return read(words);
  };
  EXPECT_EQ(with(version2, "v4").values.sharding.reshard_after_forward, Choice::no);
  EXPECT_EQ(with(version2, "v4").origin("reshard_after_forward").str(), "fsdp_config:1");
  EXPECT_EQ(with(version2, "v4").notes, Words{"fsdp_config:1: version 2 keeps gathered parameters from forward to "
                                              "backward, as transformers 4 does: reshard_after_forward is false"});
  EXPECT_EQ(with(version2, "v5").values.sharding.reshard_after_forward, Choice::automatic);
  EXPECT_EQ(read(version2).values.sharding.reshard_after_forward, Choice::automatic);
  EXPECT_EQ(
      with({"--fsdp", "full_shard auto_wrap", "--fsdp_config", R"({"version": 2, "reshard_after_forward": true})"},
           "v4")
          .values.sharding.reshard_after_forward,
      Choice::yes);
  EXPECT_EQ(with({"--fsdp", "full_shard auto_wrap", "--fsdp_config", R"({"version": 1})"}, "v4")
                .values.sharding.reshard_after_forward,
            Choice::automatic);
  const Words alone = {"--fsdp_config", R"({"min_num_params": 5})"};
  EXPECT_EQ(read(alone).values.sharding.strategy, Strategy::full_shard);
  for (const char* version : {"v4", "v5"}) {
    EXPECT_EQ(with(alone, version).values.sharding.strategy, Strategy::ddp);
    EXPECT_EQ(with(alone, version).notes,
              Words{concat("--fsdp_config has no effect: --fsdp is not given (--compat ", version, ")")});
  }
  EXPECT_EQ(with({"--fsdp", "full_shard"}, "v4").notes,
            Words{"--fsdp: blocks are wrapped even without the word auto_wrap, unlike in transformers 4; "
                  "--auto_wrap_policy no_wrap turns that off"});
  EXPECT_TRUE(with({"--fsdp", "full_shard"}, "v5").notes.empty());
}

TEST(Sharding, Rules) {
  EXPECT_EQ(problem_of({"--fsdp", "full_shard", "--offload_folder", "/no/such/folder"}),
            "--offload_folder /no/such/folder: no such folder");
  EXPECT_EQ(problem_of({"--auto_wrap_policy", "regex_wrap"}),
            "--auto_wrap_policy regex_wrap needs --wrap_pattern REGEX");
  EXPECT_TRUE(problem_of({"--wrap_pattern", "("}).starts_with("--wrap_pattern '(' is not a regular expression: "));
  EXPECT_EQ(problem_of({"--param_dtype", "float16"}),
            "--param_dtype fp16 needs --fp16: without loss scaling small gradients vanish");
  EXPECT_EQ(problem_of({"--fp16", "--param_dtype", "bf16"}), "--param_dtype bf16 contradicts --fp16");
  EXPECT_EQ(problem_of({"--grad_compression", "powersdg:rank=2"}),
            "--grad_compression 'powersdg:rank=2': unknown method 'powersdg' (did you mean "
            "powersgd?); the methods are none, fp16, bf16, powersgd, topk, onebit");
  EXPECT_EQ(problem_of({"--grad_compression", "topk:ratio=2"}),
            "--grad_compression 'topk:ratio=2': topk: ratio is '2'; it must be above 0 and at "
            "most 1");
  EXPECT_EQ(problem_of({"--grad_compression", "onebit", "--device", "cuda"}),
            "--grad_compression onebit with --device cuda: signs are packed on the CPU; use powersgd or bf16, or "
            "--device cpu");
  EXPECT_EQ(problem_of({"--ddp_comm_hook", "power_sgd"}), "0 problems: ");
  EXPECT_EQ(read({"--ddp_comm_hook", "power_sgd"}).values.sharding.grad_compression, "powersgd");
  EXPECT_TRUE(problem_of({"--grad_compression", "bf16", "--deterministic_reduce"})
                  .starts_with("--grad_compression bf16 contradicts"));
  EXPECT_TRUE(
      problem_of({"--reduce_dtype", "bf16", "--deterministic_reduce"}).starts_with("--reduce_dtype bf16 contradicts"));
  EXPECT_EQ(
      problem_of({"--gradient_predivide_factor", "4", "--deterministic_reduce"}),
      "--gradient_predivide_factor 4 contradicts --deterministic_reduce: the fixed order adds unscaled gradients");
  EXPECT_TRUE(problem_of({"--reduce_dtype", "bf16", "--grad_compression", "fp16"}).find("keep one of them") !=
              std::string::npos);
  EXPECT_EQ(problem_of({"--zero_stage", "4"}), "--zero_stage is 4; it must be at least 0 and at most 3");
}

TEST(Sharding, BucketsCountElementsOrBytes) {
  const Resolved resolved = read({"--zero_stage", "2", "--reduce_bucket_size", "1048576"});
  EXPECT_EQ(resolved.values.parallel.ddp_bucket_cap_mb, 4);
  EXPECT_EQ(resolved.origin("ddp_bucket_cap_mb").str(), "derived (--reduce_bucket_size 1048576)");
  EXPECT_EQ(problem_of({"--reduce_bucket_size", "1048576", "--ddp_bucket_cap_mb", "25"}),
            "--reduce_bucket_size 1048576 (4 MiB of fp32), --ddp_bucket_cap_mb 25: these specify different bucket "
            "sizes; keep one of them");
}

TEST(Sharding, WhatHasNoEffectIsNamed) {
  EXPECT_EQ(unused_settings(read({"--max_steps", "5", "--min_num_params", "7"})),
            (Words{"--min_num_params has no effect: the strategy ddp keeps parameters whole"}));
  EXPECT_EQ(unused_settings(read({"--max_steps", "5", "--shard_group_size", "2", "--loss_scale", "8"})),
            (Words{"--loss_scale has no effect: --fp16 is not given",
                   "--shard_group_size has no effect: the strategy ddp shards nothing"}));
  EXPECT_TRUE(unused_settings(read({"--fsdp", "full_shard", "--transformer_layer_cls_to_wrap", "GPT2Block", "--fp16",
                                    "--loss_scale", "8"}))
                  .empty());
  EXPECT_EQ(unused_settings(read({"--fsdp_config", R"({"use_orig_params": false})"})).size(), 1u);
  EXPECT_TRUE(unused_settings(read({"--zero_stage", "1", "--forward_prefetch", "false"})).empty())
      << "it has an effect there";
  EXPECT_EQ(unused_settings(read({"--forward_prefetch", "false"})),
            (Words{"--forward_prefetch has no effect: the strategy ddp shards nothing"}));
  for (const Words& stays :
       {Words{"--strategy", "shard_grad_op", "--backward_prefetch", "no_prefetch"},
        Words{"--fsdp", "full_shard", "--reshard_after_forward", "false", "--backward_prefetch", "no_prefetch"}})
    EXPECT_EQ(unused_settings(read(stays)), (Words{"--backward_prefetch has no effect: parameters stay whole after "
                                                   "forward: backward gathers nothing"}));
}

// Any mixture of the words either agrees or is refused; the result is exactly one row of the table.
RC_GTEST_PROP(Sharding, AnyMixtureEndsInOneStrategyOrAMessage, ()) {
  static const Words fsdp = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "auto_wrap", "offload"};
  Words arguments;
  std::string words;
  for (const std::string& word : fsdp)
    if (*rc::gen::inRange(0, 4) == 0) words += word + " ";
  if (!words.empty()) arguments.insert(arguments.end(), {"--fsdp", words});
  if (*rc::gen::arbitrary<bool>())
    arguments.insert(arguments.end(), {"--zero_stage", std::to_string(*rc::gen::inRange(0, 4))});
  if (*rc::gen::arbitrary<bool>())
    arguments.insert(arguments.end(),
                     {"--strategy", *rc::gen::element<std::string>("ddp", "zero3", "full_shard", "1")});
  if (*rc::gen::arbitrary<bool>())
    arguments.insert(arguments.end(),
                     {"--fsdp_config", *rc::gen::element<std::string>(R"({"sharding_strategy": 1})",
                                                                      R"({"offload_params": true})", "{}")});
  Problems problems;
  const Resolved resolved = resolve_flags(arguments, problems, no_environment);
  const ShardingConfig& s = resolved.values.sharding;
  if (!problems.lines.empty()) return;
  if (s.zero_stage >= 0) RC_ASSERT(same_strategy(s.strategy, zero_strategy(s.zero_stage)));
  if (words.find("full_shard") != std::string::npos) RC_ASSERT(same_strategy(s.strategy, Strategy::full_shard));
  if (words.find("offload") == std::string::npos) return;
  const bool whole = same_strategy(s.strategy, Strategy::ddp);  // ddp does not offload parameters
  RC_ASSERT(s.cpu_offload == (whole ? Offload::optimizer : Offload::all));
}

}  // namespace
}  // namespace tessera::config
