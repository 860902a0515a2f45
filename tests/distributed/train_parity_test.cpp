// Every way to split the same global batch trains the same model: 1, 2, 3, 4 processes, with and without accumulation.

#include "harness.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>
#include <ostream>

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/core/run_config.h>
#include <tessera/train/loop/trainer.h>

namespace tessera::testing {
namespace {

constexpr int steps = 6;

struct Cut {
  int processes, rows, micro_batches;  // the product is the global batch of 12 rows
};

void PrintTo(const Cut& cut, std::ostream* out) {
  *out << cut.processes << " processes x " << cut.rows << " rows x " << cut.micro_batches << " micro-batches";
}

struct Outcome {
  std::vector<double> loss, grad_norm;
  std::vector<double> eval_loss;
  checkpoint::NamedTensors weights;
};

class TrainParity : public ::testing::TestWithParam<Cut> {
 protected:
  TrainParity() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += concat("rank ", i % 5, " holds tile ", (i * i) % 13, " of the mosaic.\n");
    write_file_atomically(path_join(folder_.path(), "text.txt"), text);
  }

  Outcome train(const Cut& cut, const std::string& optimizer) const {
    RunConfig config;
    config.model.config_name = "gpt2-tiny";
    config.model.config_overrides =
        "n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=32,bos_token_id=256,eos_token_id=256";
    config.model.tokenizer_name = "byte";
    config.data.train_file = path_join(folder_.path(), "text.txt");
    config.data.block_size = 32;
    config.optimization.optim = parse_word<OptimizerKind>(optimizer).value();
    config.optimization.learning_rate = optimizer == "sgd" ? 0.1 : 1e-3;
    config.optimization.weight_decay = 0.01;
    config.optimization.warmup_steps = 2;
    config.optimization.max_steps = steps;
    config.optimization.per_device_train_batch_size = cut.rows;
    config.optimization.gradient_accumulation_steps = cut.micro_batches;
    config.parallel.ddp_bucket_cap_mb = 0.05;  // several buckets
    config.output.output_dir =
        path_join(folder_.path(), concat(optimizer, cut.processes, "-", cut.rows, "-", cut.micro_batches));
    config.output.logging_steps = 1;
    config.output.eval_strategy = Interval::steps;
    config.output.eval_steps = 3;
    const auto body = [&](comm::World&) {
      ASSERT_NE(std::freopen("/dev/null", "w", stderr), nullptr);  // hides progress; failures reach the parent through
                                                                   // a pipe
      EXPECT_EQ(train::train(config, Value::make_object()), ExitCode::done);
    };
    run_ranks(cut.processes, body, 60.0);
    if (HasFailure()) return {};

    Outcome outcome;
    const std::string path = path_join(config.output.output_dir, "metrics.jsonl");
    for (const std::string& line : split(read_file(path), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, path);
      if (value.find("event") == nullptr) {
        outcome.loss.push_back(value.at("loss").as_real());
        outcome.grad_norm.push_back(value.at("grad_norm").as_real());
      } else if (value.at("event").as_string() == "eval") {
        outcome.eval_loss.push_back(value.at("eval_loss").as_real());
      }
    }
    outcome.weights = checkpoint::read_hf_weights(config.output.output_dir);
    return outcome;
  }

  static void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double bound,
                           const char* what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_LE(std::abs(found[i] - expected[i]), bound * std::abs(expected[i]))
          << what << " " << i << ": " << found[i] << ", alone " << expected[i];
  }

 private:
  TemporaryFolder folder_;
};

TEST_P(TrainParity, SgdEqualsOneProcess) {
  const Outcome alone = train({1, 12, 1}, "sgd"), found = train(GetParam(), "sgd");
  ASSERT_EQ(alone.loss.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(alone.eval_loss.size(), 2u);
  expect_close(found.loss, alone.loss, 1e-6, "loss");
  expect_close(found.eval_loss, alone.eval_loss, 1e-6, "eval loss");
  expect_close(found.grad_norm, alone.grad_norm, 1e-5, "gradient norm");
  ASSERT_EQ(found.weights.size(), alone.weights.size());
  for (std::size_t i = 0; i < alone.weights.size(); ++i) {
    const double largest = (found.weights[i].second - alone.weights[i].second).abs().max().item<double>();
    EXPECT_LE(largest, 1e-6) << alone.weights[i].first;
  }
}

TEST_P(TrainParity, AdamWEqualsOneProcess) {
  const Outcome alone = train({1, 12, 1}, "adamw"), found = train(GetParam(), "adamw");
  expect_close(found.loss, alone.loss, 1e-6, "loss");
  ASSERT_EQ(found.weights.size(), alone.weights.size());
  for (std::size_t i = 0; i < alone.weights.size(); ++i) {
    const auto& [name, expected] = alone.weights[i];
    if (name.ends_with("attn.c_attn.bias"))
      continue;  // the key bias has a true gradient of zero: Adam turns rounding noise into steps
    const double difference = (found.weights[i].second - expected).norm().item<double>(),
                 norm = expected.norm().item<double>();
    EXPECT_LE(difference, 1e-5 * norm) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, TrainParity,
                         ::testing::Values(Cut{1, 3, 4}, Cut{2, 6, 1}, Cut{2, 3, 2}, Cut{3, 4, 1}, Cut{3, 2, 2},
                                           Cut{4, 3, 1}, Cut{4, 1, 3}),
                         [](const auto& info) {
                           return concat(info.param.processes, "processes_", info.param.rows, "rows_",
                                         info.param.micro_batches, "micro");
                         });

}  // namespace
}  // namespace tessera::testing
