// accelerate's questions: their order, the resulting files, and invalid answers.

#include <tessera/config/accelerate/questionnaire.h>

#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert.h>
#include <tessera/config/resolve/resolve.h>

#include <sstream>

namespace tessera::config {
namespace {

struct Talk {
  std::string questions, yaml, error;
};

Talk talk(const std::string& answers, bool patient = false) {
  std::istringstream in(answers);
  std::ostringstream out;
  Dialog dialog(in, out, patient);
  Talk result;
  try {
    result.yaml = dump_yaml(ask_configuration(dialog));
    std::string rest;
    EXPECT_FALSE(std::getline(in, rest) && !rest.empty()) << "not asked for: " << rest << "\n" << out.str();
  } catch (const InputError& error) {
    result.error = error.what();
  }
  result.questions = out.str();
  return result;
}

/// The answers, one per line; "" accepts the default.
std::string lines(const std::vector<std::string>& answers) { return join(answers, "\n") + "\n"; }

/// Tessera's interpretation of the file.
RunConfig meaning(const std::string& yaml) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "a.yaml");
  write_file_atomically(path, yaml);
  return resolve_flags({"--config_file", path},
                       [](const std::string&) -> std::optional<std::string> { return std::nullopt; })
      .values;
}

TEST(Questionnaire, OneProcessOnTheCpu) {
  // this machine, no distributed training, CPU only, no dynamo, no DeepSpeed, bf16
  const Talk t = talk(lines({"", "", "yes", "", "", "bf16"}));
  EXPECT_EQ(t.error, "") << t.questions;
  EXPECT_EQ(t.yaml,
            "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: 'NO'\nenable_cpu_affinity: "
            "false\nmachine_rank: 0\n"
            "main_training_function: main\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 1\nrdzv_backend: "
            "static\nsame_network: true\nuse_cpu: true\n");
  EXPECT_TRUE(meaning(t.yaml).optimization.bf16);
}

TEST(Questionnaire, SeveralProcessesOnTheCpu) {
  const Talk t = talk(lines({"0", "multi-CPU", "1", "no", "no", "no", "4", "0"}));
  EXPECT_EQ(t.error, "") << t.questions;
  const RunConfig run = meaning(t.yaml);
  EXPECT_EQ(run.parallel.num_processes, 4);
  EXPECT_EQ(run.device, Device::cpu);
}

TEST(Questionnaire, FsdpVersion1) {
  const Talk t = talk(lines({"",  "4", "",    "",   "",    "",   "yes", "1", "SHARD_GRAD_OP", "yes", "1", "1e6",
                             "1", "0", "yes", "no", "yes", "no", "2",   "1"}));
  EXPECT_EQ(t.error, "") << t.questions;
  EXPECT_NE(t.questions.find("  0  FULL_SHARD  (1 in a file and in PyTorch's guide)\n  1  SHARD_GRAD_OP  (2 there)\n"),
            std::string::npos)
      << t.questions;
  EXPECT_NE(t.yaml.find("distributed_type: FSDP\n"), std::string::npos) << t.yaml;
  const RunConfig run = meaning(t.yaml);
  EXPECT_EQ(run.sharding.strategy, Strategy::shard_grad_op) << "accelerate writes this key but never reads it";
  EXPECT_EQ(run.sharding.cpu_offload, Offload::all);
  EXPECT_EQ(run.sharding.auto_wrap_policy, AutoWrap::size_based);
  EXPECT_EQ(run.sharding.min_num_params, 1000000);
  EXPECT_EQ(run.sharding.backward_prefetch, layout::BackwardPrefetch::post);
  EXPECT_TRUE(run.sharding.forward_prefetch);
  EXPECT_EQ(run.parallel.num_processes, 2);
  EXPECT_TRUE(run.optimization.fp16);
}

TEST(Questionnaire, FsdpVersion2WithSizes) {
  const Talk t = talk(lines({"",          "multi-GPU", "", "",    "",    "",  "yes", "",  "",  "",  "", "no",
                             "BertLayer", "1",         "", "yes", "yes", "2", "2",   "1", "1", "4", "2"}));
  EXPECT_EQ(t.error, "") << t.questions;
  const RunConfig run = meaning(t.yaml);
  EXPECT_EQ(run.sharding.strategy, Strategy::hybrid_shard);
  EXPECT_EQ(run.sharding.shard_group_size, 2);
  EXPECT_EQ(run.sharding.transformer_layer_cls_to_wrap, "BertLayer");
  EXPECT_TRUE(run.optimization.gradient_checkpointing);
}

TEST(Questionnaire, DeepSpeed) {
  const Talk t =
      talk(lines({"", "multi-GPU", "", "", "", "yes", "", "2", "cpu", "none", "4", "yes", "0.5", "", "", "2", "fp16"}));
  EXPECT_EQ(t.error, "") << t.questions;
  const RunConfig run = meaning(t.yaml);
  EXPECT_EQ(run.sharding.strategy, Strategy::zero2);
  EXPECT_EQ(run.sharding.cpu_offload, Offload::optimizer);
  EXPECT_EQ(run.optimization.gradient_accumulation_steps, 4);
  EXPECT_EQ(run.optimization.max_grad_norm, 0.5);
}

TEST(Questionnaire, AskedInAcceleratesOrder) {
  const Talk t = talk(lines({"", "multi-GPU", "2", "1", "10.0.0.1", "29500", "", "", "", "",  "yes",
                             "", "",          "",  "",  "yes",      "",      "", "", "", "4", "0"}));
  EXPECT_EQ(t.error, "") << t.questions;
  std::size_t at = 0;
  for (const char* question : {"In which compute environment",
                               "Which type of machine",
                               "How many different machines",
                               "What is the rank of this machine",
                               "What is the IP address",
                               "What is the port",
                               "Are all the machines on the same local network",
                               "Should distributed operations be checked",
                               "torch dynamo",
                               "use DeepSpeed",
                               "FullyShardedDataParallel",
                               "FSDP version",
                               "resharding after forward",
                               "offload parameters and gradients",
                               "auto wrap policy",
                               "_no_split_modules",
                               "state dict type",
                               "CPU RAM efficient",
                               "activation checkpointing",
                               "parallelism config",
                               "How many GPU(s)",
                               "mixed precision"}) {
    const std::size_t next = t.questions.find(question, at);
    EXPECT_NE(next, std::string::npos) << question << " after\n" << t.questions.substr(0, at);
    if (next != std::string::npos) at = next;
  }
}

TEST(Questionnaire, TheEndOfTheAnswersIsNamed) {
  EXPECT_EQ(talk("").error,
            "the answers end at the question \"In which compute environment are you running?\"; nothing was written");
  EXPECT_EQ(talk("\n\nyes\n").error,
            "the answers end at the question \"Do you wish to optimize your script with torch dynamo?\"; nothing was "
            "written");
}

TEST(Questionnaire, NoAnswerThroughAPipeIsAnError) {
  EXPECT_EQ(
      talk(lines({"", "", "perhaps"})).error,
      "'perhaps' is not an answer to \"Do you want to run your training on CPU only (even if a GPU / Apple Silicon / "
      "Ascend NPU device is available)?\": "
      "please enter yes or no; nothing was written");
  EXPECT_NE(talk(lines({"", "TPU"})).error.find("Tessera runs on CPUs and NVIDIA GPUs"), std::string::npos);
  EXPECT_NE(talk(lines({"1"})).error.find("SageMaker"), std::string::npos);
  EXPECT_NE(talk(lines({"7"})).error.find("enter a number from 0 to 1 or one of This machine, AWS (Amazon SageMaker)"),
            std::string::npos);
  EXPECT_NE(talk(lines({"", "multi-CPU", "-3"})).error.find("an integer of at least 1"), std::string::npos);
  EXPECT_EQ(talk(lines({"", "", "yes", "", "", "fp8"})).error, "");
  // a single GPU is not distributed training
  EXPECT_NE(talk(lines({"", "multi-GPU", "", "", "", "", "", "", "1"})).error.find("choose `No distributed training`"),
            std::string::npos);
}

TEST(Questionnaire, APersonIsAskedAgain) {
  const Talk t = talk(lines({"x", "0", "9", "no distributed training", "si", "yes", "", "", "2"}), true);
  EXPECT_EQ(t.error, "");
  EXPECT_NE(t.questions.find("  please enter yes or no\n"), std::string::npos);
  EXPECT_TRUE(meaning(t.yaml).optimization.bf16);
}

}  // namespace
}  // namespace tessera::config
