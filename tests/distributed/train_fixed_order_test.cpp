// tessera train --deterministic_reduce: weights, losses and gradient norms have the same bytes for 1 to 4 processes.

#include "harness.h"

#include <cstdio>

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/core/run_config.h>
#include <tessera/train/loop/trainer.h>

namespace tessera::testing {
namespace {

constexpr int steps = 5;

struct Case {
  const char *name, *preset, *overrides, *backend;
};

class TrainFixedOrder : public ::testing::TestWithParam<Case> {
 protected:
  TrainFixedOrder() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += concat("rank ", i % 5, " holds tile ", (i * i) % 13, " of the mosaic.\n");
    write_file_atomically(path_join(folder_.path(), "text.txt"), text);
  }

  RunConfig config(const std::string& output) const {
    RunConfig config;
    config.model.config_name = GetParam().preset;
    config.model.config_overrides = GetParam().overrides;
    config.model.tokenizer_name = "byte";
    config.data.train_file = config.data.validation_file = path_join(folder_.path(), "text.txt");
    config.data.block_size = 32;
    config.optimization.learning_rate = 3e-3;
    config.optimization.weight_decay = 0.01;
    config.optimization.max_grad_norm = 0.5;
    config.optimization.max_steps = steps;
    config.optimization.per_device_train_batch_size = 2;
    config.optimization.per_device_eval_batch_size = 3;
    config.parallel.deterministic_reduce = true;
    config.parallel.logical_shards = 12;
    config.parallel.ddp_bucket_cap_mb = 0.05;
    config.output.output_dir = path_join(folder_.path(), output);
    config.output.logging_steps = 2;
    config.output.eval_strategy = Interval::steps;
    config.output.eval_steps = 3;
    return config;
  }

  /// The numbers of every log line as written, and every byte of the weights.
  std::string train(int processes, const RunConfig& config) const {
    RankOptions options;
    options.timeout_s = 100;
    options.init.backend = processes == 1 ? "auto" : GetParam().backend;
    run_ranks(
        processes,
        [&](comm::World&) {
          // Hides progress; failures reach the parent through a pipe.
          ASSERT_NE(std::freopen("/dev/null", "w", stderr), nullptr);
          ASSERT_NE(std::freopen("/dev/null", "w", stdout), nullptr);
          EXPECT_EQ(train::train(config, Value::make_object()), ExitCode::done);
        },
        options);
    if (HasFailure()) return "";
    std::string record;
    const std::string path = path_join(config.output.output_dir, "metrics.jsonl");
    for (const std::string& line : split(read_file(path), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, path);
      for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "eval_loss"})
        if (const Value* number = value.find(key)) record += concat(key, "=", dump_json(*number), " ");
      record += "\n";
    }
    return record + read_file(path_join(config.output.output_dir, "model.safetensors"));
  }

  TemporaryFolder folder_;
};

TEST_P(TrainFixedOrder, SameBytesForEveryNumberOfProcesses) {
  const std::string alone = train(1, config("1"));
  ASSERT_NE(alone.find("grad_norm="), std::string::npos);
  ASSERT_NE(alone.find("eval_loss="), std::string::npos);
  for (const int processes : {2, 3, 4}) {
    const std::string found = train(processes, config(std::to_string(processes)));
    ASSERT_FALSE(found.empty());
    // Compares the text first: a failure then shows where the numbers diverge.
    EXPECT_EQ(found.substr(0, found.find('\x01')), alone.substr(0, alone.find('\x01'))) << processes;
    EXPECT_TRUE(found == alone) << processes << " processes: other bytes";
  }
}

// A run that stops and resumes with a different number of processes equals the uninterrupted run.
TEST_P(TrainFixedOrder, AResumedRunMayHaveOtherProcesses) {
  const std::string alone = train(1, config("through"));
  RunConfig first = config("resumed");
  first.output.save_strategy = SaveStrategy::steps;
  first.output.save_steps = 2;
  train(3, first);
  RunConfig second = first;
  second.output.resume_from_checkpoint = path_join(first.output.output_dir, "checkpoint-2");
  train(4, second);
  EXPECT_TRUE(read_file(path_join(first.output.output_dir, "model.safetensors")) ==
              read_file(path_join(folder_.path() + "/through", "model.safetensors")));
}

constexpr const char* gpt2 =
    "n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=32,bos_token_id=256,eos_token_id=256,resid_pdrop=0.1,"
    "embd_pdrop=0.1,attn_pdrop=0.1";
constexpr const char* llama =
    "num_hidden_layers=2,hidden_size=32,num_attention_heads=2,num_key_value_heads=1,head_dim=16,intermediate_size=64,"
    "vocab_size=257,max_position_embeddings=32,bos_token_id=256,eos_token_id=256";

INSTANTIATE_TEST_SUITE_P(Models, TrainFixedOrder,
                         ::testing::Values(Case{"gpt2_gloo", "gpt2-tiny", gpt2, "gloo"},
                                           Case{"gpt2_shm", "gpt2-tiny", gpt2, "shm"},
                                           Case{"llama_gloo", "llama-tiny", llama, "gloo"},
                                           Case{"llama_shm", "llama-tiny", llama, "shm"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::testing
