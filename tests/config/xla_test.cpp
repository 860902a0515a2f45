/// \file
/// --device xla: incompatible settings, and how its devices are counted.

#include <gtest/gtest.h>

#include <tessera/config/resolve/resolve.h>
#include <tessera/config/rules/validate_xla.h>

#include <string>
#include <vector>

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;

Words problems_of(Words words) {
  words.insert(words.end(), {"--device", "xla"});
  Problems problems;
  const Resolved resolved = resolve_flags(words, problems);
  validate_xla(resolved, problems);
  return problems.lines;
}

TEST(XlaRules, EverySettingThatIsNotCompiledIsNamed) {
  struct Case {
    Words words;
    std::string problem;
  };
  const std::vector<Case> cases = {
      {{"--optim", "adafactor"},
       "--optim adafactor with --device xla: the compiled update is adamw, adam, sgd, adagrad, rmsprop or lion, with "
       "fp32 states"},
      {{"--optim", "adamw_8bit"},
       "--optim adamw_8bit with --device xla: the compiled update is adamw, adam, sgd, adagrad, rmsprop or lion, with "
       "fp32 states"},
      {{"--fp16", "true"}, "--fp16 true with --device xla: TPUs compute in bfloat16: use --bf16; remove it"},
      {{"--tp_size", "2"},
       "--tp_size 2 with --device xla: one process drives all devices, which are only data-parallel; remove it"},
      {{"--pp_size", "2"},
       "--pp_size 2 with --device xla: one process drives all devices, which are only data-parallel; remove it"},
      {{"--packing", "true"},
       "--packing true with --device xla: the ends of documents would be part of the compiled program; remove it"},
      {{"--neftune_noise_alpha", "5"},
       "--neftune_noise_alpha 5.0 with --device xla: noise on embeddings is not compiled; remove it"},
      {{"--tokens_per_batch", "512"},
       "--tokens_per_batch 512 with --device xla: every step runs the same compiled program; remove it"},
      {{"--fp8_format", "hybrid"}, "--fp8_format hybrid with --device xla: its products are not compiled; remove it"},
      {{"--lr_scheduler_type", "one_cycle"},
       "--lr_scheduler_type one_cycle with --device xla: it changes betas, which are part of the compiled program"},
      {{"--fsdp", "hybrid_shard"},
       "--device xla has no hybrid strategies: all devices share one set of shards; use full_shard or shard_grad_op"},
      {{"--grad_compression", "bf16"},
       "--grad_compression bf16 with --device xla: one process drives all devices, which are only data-parallel; "
       "remove "
       "it"},
      {{"--deterministic_reduce", "true"},
       "--deterministic_reduce true with --device xla: the compiler chooses the order of sums, the same one in every "
       "run; remove it"},
  };
  EXPECT_EQ(problems_of({"--strategy", "auto"}),
            Words{"--strategy auto with --device xla: the planner does not support TPUs; use full_shard, shard_grad_op "
                  "or ddp, and check with `tessera xla compile` what fits"});
  for (const Case& c : cases) EXPECT_EQ(problems_of(c.words), Words{c.problem}) << c.words[0];
  EXPECT_EQ(problems_of({"--fsdp", "full_shard", "--bf16", "true", "--gradient_checkpointing", "true"}), Words{});
}

TEST(XlaRules, ProcessesAreItsDevices) {
  const Resolved resolved = resolve_flags({"--device", "xla", "--num_processes", "8"});
  EXPECT_EQ(resolved.values.parallel.xla_devices, 8);
  EXPECT_EQ(resolved.values.parallel.num_processes, 1);
  EXPECT_EQ(resolve_flags({"--num_processes", "8"}).values.parallel.xla_devices, 0);
}

}  // namespace
}  // namespace tessera::config
