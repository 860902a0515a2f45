/// \file
/// --device xla: what it cannot stand beside, and how its devices are counted.

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
       "--optim adafactor beside --device xla: the compiled update is one of adamw, adam, sgd, adagrad, rmsprop and "
       "lion, with states of fp32"},
      {{"--optim", "adamw_8bit"},
       "--optim adamw_8bit beside --device xla: the compiled update is one of adamw, adam, sgd, adagrad, rmsprop and "
       "lion, with states of fp32"},
      {{"--fp16", "true"}, "--fp16 true beside --device xla: TPUs compute in bfloat16: give --bf16; leave it out"},
      {{"--tp_size", "2"},
       "--tp_size 2 beside --device xla: one process drives all devices, which share the data only; leave it out"},
      {{"--pp_size", "2"},
       "--pp_size 2 beside --device xla: one process drives all devices, which share the data only; leave it out"},
      {{"--packing", "true"},
       "--packing true beside --device xla: where documents end would be part of the compiled program; leave it out"},
      {{"--neftune_noise_alpha", "5"},
       "--neftune_noise_alpha 5.0 beside --device xla: noise on embeddings is not compiled yet; leave it out"},
      {{"--tokens_per_batch", "512"},
       "--tokens_per_batch 512 beside --device xla: every step runs the same compiled program; leave it out"},
      {{"--fp8_format", "hybrid"},
       "--fp8_format hybrid beside --device xla: its products are not compiled; leave it out"},
      {{"--lr_scheduler_type", "one_cycle"},
       "--lr_scheduler_type one_cycle beside --device xla: it moves betas, which are part of the compiled program"},
      {{"--fsdp", "hybrid_shard"},
       "--device xla has no hybrid strategies: all devices share one set of shards; use full_shard or shard_grad_op"},
      {{"--grad_compression", "bf16"},
       "--grad_compression bf16 beside --device xla: one process drives all devices, which share the data only; leave "
       "it "
       "out"},
      {{"--deterministic_reduce", "true"},
       "--deterministic_reduce true beside --device xla: the compiler chooses the order of sums, the same one in every "
       "run; "
       "leave it out"},
  };
  EXPECT_EQ(
      problems_of({"--strategy", "auto"}),
      Words{"--strategy auto beside --device xla: the planner knows no TPUs; say full_shard, shard_grad_op or ddp, "
            "and ask `tessera xla compile` what fits"});
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
