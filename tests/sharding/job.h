#pragma once
/// \file
/// Trains a task on the ranks of a job and compares it with the plain loop.

#include <tests/sharding/tasks.h>

#include <gtest/gtest.h>

#include <tessera/parallel/fully_shard.h>
#include <tests/distributed/harness.h>

#include <cmath>
#include <cstdlib>
#include <optional>

namespace tessera::testing {

/// TESSERA_FULL=1: full products instead of covering subsets.
inline bool full_product() {
  const char* value = std::getenv("TESSERA_FULL");
  return value != nullptr && std::string(value) == "1";
}

/// Strategies in the forms that tests iterate over; shard_group_size depends on the number of ranks.
struct Form {
  const char* name;
  const char* strategy;
  int (*group)(int ranks);
};
inline const std::vector<Form>& forms() {
  static constexpr auto all = [](int) { return 0; };
  static constexpr auto half = [](int ranks) { return ranks % 2 == 0 ? ranks / 2 : ranks; };
  static const std::vector<Form> forms = {
      {"ddp", "ddp", all},
      {"zero1", "zero1", all},
      {"zero2", "zero2", all},
      {"shard_grad_op", "shard_grad_op", all},
      {"full_shard", "full_shard", all},
      {"hybrid_shard", "hybrid_shard", half},
      {"hybrid_shard_zero2", "hybrid_shard_zero2", half},
      {"hsdp_one", "full_shard", [](int) { return 1; }},  // every rank is its own group
      {"hybrid_zero1", "zero1", half},
  };
  return forms;
}

/// All other ranks start with different values: the engine must broadcast rank 0's.
inline void spoil_values(comm::World& world, const torch::nn::Module& module) {
  if (world.rank() == 0) return;
  const at::NoGradGuard no_grad;
  for (const at::Tensor& p : module.parameters()) at::Tensor(p).add_(1);
}

/// Drops options that the strategy refuses (parallel/sharding/check_options.h): tests that iterate over all forms set
/// bucket sizes, which only some strategies accept.
inline ShardingOptions fitted(ShardingOptions options) {
  const StrategyRow& strategy = row_of(options.strategy);
  if (strategy.shard_parameters) {
    options.first_bucket_mb = 1;
    options.bucket_mb = 25;
  }
  if (!strategy.reshard_after_forward) options.reshard_root = false;
  return options;
}

struct Training {
  Rule rule = Rule::sgd;
  int steps = 20;
  int accumulation = 1;  ///< fast order: micro-batches per rank
  at::ScalarType dtype = at::kFloat;
  bool clip = true;
};

/// With options.logical_shards the micro-batches are those of train_alone(V); otherwise rank r's micro-batch m is part
/// r * accumulation + m. Losses: [step][this rank's micro-batches].
inline Record train_job(comm::World& world, const Task& task, ShardingOptions options, const Training& training) {
  const Trained net = task.make(training.dtype);
  spoil_values(world, *net.module);
  const std::int64_t V = options.logical_shards;
  const std::int64_t micro_batches = V > 0 ? V / world.size() : training.accumulation;
  Sharded sharded(*net.module, fitted(std::move(options)));
  const auto optimizer = make_rule(training.rule, sharded.slots(set_decay));
  Record record;
  for (int step = 0; step < training.steps; ++step) {
    sharded.zero_grad();
    record.losses.emplace_back();
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      std::optional<Sharded::NoSync> pause;
      if (V == 0 && m + 1 < micro_batches) pause.emplace(sharded);
      const at::Tensor loss = V > 0 ? net.loss(step, m * world.size() + world.rank(), V)
                                    : net.loss(step, world.rank() * micro_batches + m, world.size() * micro_batches);
      record.losses.back().push_back(loss.item<double>());
      (V > 0 ? loss : loss / micro_batches).backward();
    }
    record.norms.push_back(sharded.clip_grad_norm(max_norm));
    optimizer->step(learning_rate(training.rule));
  }
  sharded.visit_parameters(
      [&](const std::string& name, const at::Tensor& value) { record.weights[name] = value.clone(); });
  sharded.check_replicas();
  return record;
}

/// Expects identical bits. `got` comes from one rank.
inline void expect_same_bits(comm::World& world, const Record& got, const Record& expected, const std::string& what) {
  ASSERT_EQ(got.losses.size(), expected.losses.size()) << what;
  for (std::size_t step = 0; step < got.losses.size(); ++step) {
    for (std::size_t m = 0; m < got.losses[step].size(); ++m)
      ASSERT_EQ(
          got.losses[step][m],
          expected.losses[step][m * static_cast<std::size_t>(world.size()) + static_cast<std::size_t>(world.rank())])
          << what << ": loss of step " << step << ", micro-batch " << m;
    ASSERT_EQ(got.norms[step], expected.norms[step]) << what << ": norm of step " << step;
  }
  ASSERT_FALSE(got.weights.empty());
  for (const auto& [name, value] : got.weights) {
    ASSERT_TRUE(expected.weights.count(name)) << what << ": " << name;
    const at::Tensor& want = expected.weights.at(name);
    EXPECT_TRUE(at::equal(value, want)) << what << ": " << name << " differs by "
                                        << (value - want).abs().max().item<double>();
  }
}

/// Removes the key part of attention biases: its true gradient is zero, and Adam turns the rounding noise into steps.
inline at::Tensor without_key_bias(const std::string& name, const at::Tensor& value) {
  const at::Tensor v = value.to(at::kDouble);
  if (!name.ends_with("in_proj_bias") && !name.ends_with("c_attn.bias")) return v;
  const std::int64_t d = v.size(0) / 3;
  return at::cat({v.narrow(0, 0, d), v.narrow(0, 2 * d, d)});
}

/// The tolerances of fast order. `expected` may have any division into micro-batches, but the same one for AdamW:
/// a different division changes fp32 rounding, even on one process, and Adam amplifies it.
inline void expect_close(comm::World& world, const Record& got, const Record& expected, Rule rule, at::ScalarType dtype,
                         const std::string& what) {
  double local = 0, reference = 0;
  for (const auto& step : got.losses)
    for (const double loss : step) local += loss / static_cast<double>(step.size());
  for (const auto& step : expected.losses)
    for (const double loss : step) reference += loss / static_cast<double>(step.size());
  at::Tensor sum = at::full({1}, local / world.size(), at::kDouble);
  world.group().all_reduce(sum).wait();
  const bool fp64 = dtype == at::kDouble;
  EXPECT_NEAR(sum.item<double>() / reference, 1, fp64 ? 1e-11 : 1e-6) << what;
  ASSERT_FALSE(got.weights.empty());
  for (const auto& [name, value] : got.weights) {
    ASSERT_TRUE(expected.weights.count(name)) << what << ": " << name;
    const at::Tensor a = without_key_bias(name, value), b = without_key_bias(name, expected.weights.at(name));
    if (rule == Rule::adamw) {
      EXPECT_LE((a - b).norm().item<double>(), (fp64 ? 1e-11 : 1e-5) * b.norm().item<double>()) << what << ": " << name;
    } else {
      EXPECT_LE((a - b).abs().max().item<double>(), fp64 ? 1e-11 : 1e-6) << what << ": " << name;
    }
  }
}

}  // namespace tessera::testing
