// The file of --fsdp_config: Hugging Face's and accelerate's keys, and every possible mistake.

#include <tessera/config/hf/fsdp_config.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>

#include <map>

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;
using Texts = std::map<std::string, std::string>;

Texts settings(const std::string& json) {
  Problems problems;
  const Translation file = read_fsdp_config(json, problems);
  EXPECT_EQ(problems.lines, Words{}) << json;
  Texts texts;
  for (const FileSetting& setting : file.settings) texts[setting.name] = setting.text;
  return texts;
}

Words problems_of(const std::string& json) {
  Problems problems;
  problems.unknown = UnknownWords::refuse;
  read_fsdp_config(json, problems);
  return problems.lines;
}

std::string problem_of(const std::string& json) {
  const Words lines = problems_of(json);
  return lines.size() == 1 ? lines.front() : concat(lines.size(), " problems: ", join(lines, " | "));
}

// The example of the Hugging Face guide, and the output of accelerate's questionnaire for versions 1 and 2.
TEST(FsdpConfig, HuggingFacesKeys) {
  EXPECT_EQ(settings(R"({"backward_prefetch": "backward_pre", "forward_prefetch": "false", "limit_all_gathers": true,
                         "use_orig_params": true, "sync_module_states": "True",
                         "transformer_layer_cls_to_wrap": ["GPT2Block", "BertLayer"],
                         "min_num_params": 0, "cpu_ram_efficient_loading": true, "activation_checkpointing": "yes",
                         "xla": false, "xla_fsdp_grad_ckpt": false})"),
            (Texts{{"backward_prefetch", "backward_pre"},
                   {"forward_prefetch", "false"},
                   {"limit_all_gathers", "true"},
                   {"sync_module_states", "True"},
                   {"transformer_layer_cls_to_wrap", "GPT2Block,BertLayer"},
                   {"cpu_ram_efficient_loading", "true"},
                   {"gradient_checkpointing", "yes"}}));
}

TEST(FsdpConfig, AcceleratesFiles) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "accelerate.yaml");
  write_file_atomically(path,
                        "compute_environment: LOCAL_MACHINE\n"
                        "distributed_type: FSDP\n"
                        "fsdp_config:\n"
                        "  fsdp_version: 1\n"
                        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                        "  fsdp_backward_prefetch_policy: BACKWARD_PRE\n"
                        "  fsdp_offload_params: false\n"
                        "  fsdp_sharding_strategy: 2\n"
                        "  fsdp_state_dict_type: FULL_STATE_DICT\n"
                        "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
                        "  fsdp_use_orig_params: true\n"
                        "num_processes: 2\n");
  Problems problems;
  const Translation file = read_fsdp_config(path, problems);
  EXPECT_EQ(problems.lines, Words{});
  ASSERT_EQ(file.settings.size(), 6u);
  EXPECT_EQ(file.settings[0].name, "auto_wrap_policy");
  EXPECT_EQ(file.settings[2].name, "cpu_offload");
  EXPECT_EQ(file.settings[2].text, "none");
  EXPECT_EQ(file.settings[3].name, "strategy");
  EXPECT_EQ(file.settings[3].text, "2");
  EXPECT_EQ(file_and_line(file.settings[3].where), path + ":8");
  EXPECT_EQ(file.notes, Words{}) << "use_orig_params: true describes this implementation";
}

// Words, and the numbers of torch.distributed.fsdp.StateDictType.
TEST(FsdpConfig, KindsOfStateDict) {
  for (const auto& [text, type] :
       {std::pair("\"FULL_STATE_DICT\"", "full"), std::pair("\"SHARDED_STATE_DICT\"", "sharded"),
        std::pair("\"Local_State_Dict\"", "local"), std::pair("\"StateDictType.FULL_STATE_DICT\"", "full"),
        std::pair("1", "full"), std::pair("2", "local"), std::pair("3", "sharded")}) {
    RunConfig config;
    EXPECT_EQ(find_field("save_state_dict_type")
                  ->set(config, settings(concat("{\"fsdp_state_dict_type\": ", text, "}")).at("save_state_dict_type")),
              std::nullopt);
    EXPECT_EQ(word_of(config.output.save_state_dict_type), type) << text;
  }
}

TEST(FsdpConfig, NumbersAsPeopleWriteThem) {
  for (const char* text : {"100000000", "1e8", "100000000.0", "\"100000000\"", "\"1e8\""})
    EXPECT_EQ(settings(concat("{\"min_num_params\": ", text, "}")), (Texts{{"min_num_params", "100000000"}})) << text;
  EXPECT_EQ(problem_of("{\"min_num_params\": 1.5}"),
            "fsdp_config:1:20: min_num_params is '1.5'; it must be an integer");
}

TEST(FsdpConfig, ReshardAfterForwardIsThreeThings) {
  EXPECT_EQ(settings(R"({"fsdp_version": 2, "reshard_after_forward": false})"),
            (Texts{{"reshard_after_forward", "false"}}));
  EXPECT_EQ(settings(R"({"reshard_after_forward": "True"})"), (Texts{{"reshard_after_forward", "true"}}));
  EXPECT_EQ(settings(R"({"fsdp_reshard_after_forward": "SHARD_GRAD_OP"})"), (Texts{{"strategy", "SHARD_GRAD_OP"}}));
  EXPECT_EQ(settings(R"({"reshard_after_forward": 4})"), (Texts{{"shard_group_size", "4"}}));
  EXPECT_EQ(problem_of(R"({"reshard_after_forward": "maybe"})"),
            "fsdp_config:1:27: reshard_after_forward is 'maybe'; it must be one of auto, true, false");
}

TEST(FsdpConfig, MixedPrecision) {
  EXPECT_EQ(settings(R"({"mixed_precision_policy": {"param_dtype": "torch.bfloat16", "reduce_dtype": "float32", )"
                     R"("output_dtype": null}})"),
            (Texts{{"param_dtype", "torch.bfloat16"}, {"reduce_dtype", "float32"}}));
  EXPECT_EQ(settings(R"({"mixed_precision": "bf16"})"), (Texts{{"param_dtype", "bf16"}}));
  EXPECT_EQ(settings(R"({"mixed_precision": "no"})"), Texts{});
  EXPECT_EQ(problem_of(R"({"mixed_precision_policy": {"parm_dtype": "bf16"}})"),
            "fsdp_config:1:43: unknown key parm_dtype; did you mean param_dtype?");
}

TEST(FsdpConfig, Offload) {
  EXPECT_EQ(settings(R"({"fsdp_offload_params": "true"})"), (Texts{{"cpu_offload", "all"}}));
  EXPECT_EQ(settings(R"({"cpu_offload": {"offload_params": false}})"), (Texts{{"cpu_offload", "none"}}));
  EXPECT_EQ(settings(R"({"cpu_offload": "optimizer"})"), (Texts{{"cpu_offload", "optimizer"}}));
  EXPECT_EQ(problem_of(R"({"cpu_offload": {"offload_parms": true}})"),
            "fsdp_config:1:35: unknown key offload_parms; did you mean offload_params?");
}

TEST(FsdpConfig, MessagesNameFileLineAndTheNearestKey) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "fsdp.json");
  write_file_atomically(
      path,
      "{\n  \"fsdp_shardng_strategy\": 2,\n  \"backward_prefetch\": \"sometimes\",\n  \"xla\": true,\n"
      "  \"xla_fsdp_settings\": 3\n}\n");
  EXPECT_EQ(
      problems_of(path),
      (Words{
          path + ":2:28: unknown key fsdp_shardng_strategy; did you mean fsdp_sharding_strategy?",
          path + ":3:24: backward_prefetch is 'sometimes'; it must be one of backward_pre, backward_post, no_prefetch",
          path + ":5:24: xla_fsdp_settings must be an object with keys such as compute_dtype"}));
  EXPECT_EQ(problem_of("absent.json"), "--fsdp_config absent.json: no such file (a JSON object starts with '{')");
  EXPECT_EQ(problems_of(folder.path()).size(), 3u) << "the only file of a folder is read";
  write_file_atomically(path_join(folder.path(), "other.yml"), "");
  EXPECT_EQ(problem_of(folder.path()),
            concat("--fsdp_config ", folder.path(), " is a folder with 2 .json and .yaml files; specify the file"));
  EXPECT_EQ(problem_of(R"({"fsdp_config": 3})"),
            "fsdp_config:1:17: expected an object with keys such as transformer_layer_cls_to_wrap");
  EXPECT_EQ(problem_of(R"({"version": 3})"), "fsdp_config:1:13: version must be 1 or 2 (one engine implements both)");
  EXPECT_EQ(problem_of(R"({"state_dict_type": "SHARD_STATE_DICT"})"),
            "fsdp_config:1:21: state_dict_type is 'SHARD_STATE_DICT'; it must be one of sharded, full, local");
  EXPECT_TRUE(problem_of("{\"a\": ").starts_with("fsdp_config:1:"));
  EXPECT_EQ(problem_of(R"({"transformer_layer_cls_to_wrap": [1]})"),
            "fsdp_config:1:35: transformer_layer_cls_to_wrap takes CLASS,..., not an object or a list with anything "
            "but words");
}

TEST(FsdpConfig, KeysOfXla) {
  const auto notes = [](const std::string& json) {
    Problems problems;
    const Translation file = read_fsdp_config(json, problems);
    EXPECT_EQ(problems.lines, Words{}) << json;
    return file.notes;
  };
  EXPECT_EQ(notes(R"({"xla": false, "xla_fsdp_v2": false, "xla_fsdp_grad_ckpt": false, "xla_fsdp_settings": {}})"),
            Words{});
  EXPECT_EQ(notes(R"({"xla_fsdp_grad_ckpt": true})"),
            Words{"fsdp_config:1: xla_fsdp_grad_ckpt has no effect: it is for xla, which is off"});
  EXPECT_EQ(settings(R"({"xla": true, "xla_fsdp_grad_ckpt": true, "xla_fsdp_settings": {"compute_dtype": "bfloat16",
                         "reshard_after_forward": false, "flatten_parameters": null}})"),
            (Texts{{"device", "xla"},
                   {"gradient_checkpointing", "true"},
                   {"bf16", "true"},
                   {"reshard_after_forward", "false"}}));
  EXPECT_EQ(
      notes(R"({"xla": true, "xla_fsdp_v2": true, "xla_fsdp_settings": {"flatten_parameters": false,
                      "_debug_print": true, "compute_dtype": "torch.float32"}})"),
      (Words{"fsdp_config:1: flatten_parameters has no effect: with xla_fsdp_v2 parameters keep their shapes",
             "fsdp_config:2: _debug_print has no effect: it concerns torch_xla's lazy tensors; here steps are compiled "
             "once"}));
  EXPECT_EQ(settings(R"({"xla_fsdp_settings": {"reshard_after_forward": false, "compute_dtype": "bfloat16"},
                         "xla_fsdp_v2": true, "xla": true})"),
            (Texts{{"bf16", "true"}, {"xla_fsdp_v2", "true"}, {"device", "xla"}}));
  EXPECT_EQ(
      notes(R"({"xla_fsdp_settings": {"reshard_after_forward": false, "optimization_barrier_in_forward": true,
                "shard_param_on_dim_0": true, "_shard_size_multiple": 64, "flatten_parameters": true},
                "xla_fsdp_v2": true, "xla": true})"),
      (Words{
          "fsdp_config:1: reshard_after_forward has no effect: with xla_fsdp_v2 the compiler decides when parameters "
          "are gathered and freed",
          "fsdp_config:1: optimization_barrier_in_forward has no effect: with xla_fsdp_v2 the compiler decides when "
          "parameters are gathered and freed",
          "fsdp_config:2: shard_param_on_dim_0 has no effect: xla_fsdp_v2 always does that",
          "fsdp_config:2: _shard_size_multiple has no effect: with xla_fsdp_v2 dimension 0 is padded to a multiple "
          "of the devices",
          "fsdp_config:2: flatten_parameters has no effect: with xla_fsdp_v2 parameters keep their shapes"}));
  EXPECT_EQ(notes(R"({"xla": true, "xla_fsdp_settings": {"flatten_parameters": false}})"),
            Words{"fsdp_config:1: flatten_parameters has no effect: a unit's parameters are always one flat vector"});
  EXPECT_EQ(problem_of(R"({"xla": true, "xla_fsdp_settings": {"sharding_groups": [[0]]}})"),
            "fsdp_config:1:56: sharding_groups: all devices share one set of shards");
}

TEST(FsdpConfig, ValuesThatAskForNothing) {
  EXPECT_EQ(settings(R"({"transformer_layer_cls_to_wrap": [], "min_num_params": 0, "backward_prefetch": null})"),
            Texts{});
}

TEST(FsdpConfig, HostileFilesAreRefusedAtOnce) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "fsdp.json");
  std::string text = "{";
  for (int i = 0; text.size() < 1'000'000; ++i) text += concat("\"min_num_param", i, "\": 1,\n");
  write_file_atomically(path, text + "\"version\": 2}");
  EXPECT_TRUE(problem_of(path).find("262144") != std::string::npos);
  const Words capped = problems_of(text.substr(0, text.find("\"min_num_param100\"")) + "\"version\": 2}");
  EXPECT_EQ(capped.size(), 21u);
  EXPECT_EQ(capped.back(), "fsdp_config:1:1: 80 more unknown keys");
}

TEST(FsdpConfig, TwoSpellingsMustAgree) {
  EXPECT_EQ(settings(R"({"fsdp_sharding_strategy": 1, "sharding_strategy": "FULL_SHARD"})"),
            (Texts{{"strategy", "1"}}));
  EXPECT_EQ(problem_of("{\"min_num_params\": 5,\n\"fsdp_min_num_param\": 6}"),
            "fsdp_config:2:23: fsdp_min_num_param 6 contradicts min_num_params 5 on line 1; keep one of them");
}

// For any file, each key is read, noted, or refused by a message with its location; nothing is thrown.
RC_GTEST_PROP(FsdpConfig, AnyObjectIsReadOrRefused, ()) {
  static const Words names = {"sharding_strategy",
                              "fsdp_reshard_after_forward",
                              "cpu_offload",
                              "fsdp_auto_wrap_policy",
                              "min_num_params",
                              "mixed_precision",
                              "version",
                              "state_dict_type",
                              "xla",
                              "use_orig_params",
                              "backward_prefetch",
                              "nonsense",
                              "activation_checkpointing",
                              "param_dtype",
                              "fsdp_",
                              ""};
  const auto value = [] {
    switch (*rc::gen::inRange(0, 7)) {
      case 0:
        return Value();
      case 1:
        return Value::of(*rc::gen::arbitrary<bool>());
      case 2:
        return Value::of(*rc::gen::arbitrary<std::int64_t>());
      case 3:
        return Value::of(*rc::gen::arbitrary<double>());
      case 4:
        return Value::of(
            *rc::gen::element<std::string>("bf16", "1", "FULL_SHARD", "true", "no", "SIZE_BASED_WRAP", ""));
      case 5:
        return Value::make_array({Value::of("A"), Value::of(*rc::gen::inRange(0, 2) == 0 ? "B" : "")});
      default:
        return Value::make_object({{"param_dtype", Value::of("bf16")}, {"offload_params", Value::of(true)}});
    }
  };
  std::vector<Value::Member> members;
  for (const std::string& name : names)
    if (*rc::gen::arbitrary<bool>()) members.emplace_back(name, value());
  Problems problems;
  const Translation file = read_fsdp_config(dump_json(Value::make_object(std::move(members))), problems);
  for (const std::string& line : problems.lines) RC_ASSERT(line.starts_with("fsdp_config:"));
  for (const FileSetting& setting : file.settings) {  // the table accepts every setting that is passed on
    RunConfig config;
    RC_ASSERT(!find_field(setting.name)->set(config, setting.text));
  }
}

}  // namespace
}  // namespace tessera::config
