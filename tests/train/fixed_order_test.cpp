#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/config/core/run_config.h>
#include <tessera/train/loop/fixed_order.h>

namespace tessera::train {
namespace {

RunConfig fixed(std::int64_t shards) {
  RunConfig config;
  config.parallel.deterministic_reduce = true;
  config.parallel.logical_shards = shards;
  return config;
}

/// The error message; "" if none is thrown.
std::string problem(const RunConfig& config, std::int64_t world_size, const Value& resolved = Value::make_object()) {
  try {
    with_fixed_order(config, resolved, world_size);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(FixedOrder, ProcessesShareTheShards) {
  for (const std::int64_t world_size : {1, 2, 3, 4, 6, 12}) {
    const RunConfig config = with_fixed_order(fixed(12), Value::make_object(), world_size);
    EXPECT_EQ(config.optimization.gradient_accumulation_steps * world_size, 12);
    EXPECT_EQ(config.parallel.threads_per_process, 1);
    EXPECT_EQ(config.parallel.logical_shards, 12);
  }
}

TEST(FixedOrder, WithoutShardsTheRunAsItIsDecides) {
  RunConfig config = fixed(0);
  config.optimization.gradient_accumulation_steps = 3;
  EXPECT_EQ(with_fixed_order(config, Value::make_object(), 4).parallel.logical_shards, 12);
}

TEST(FixedOrder, AnOrdinaryRunStaysAsItIs) {
  RunConfig config;
  config.optimization.gradient_accumulation_steps = 5;
  const RunConfig same = with_fixed_order(config, Value::make_object(), 3);
  EXPECT_EQ(same.optimization.gradient_accumulation_steps, 5);
  EXPECT_EQ(same.parallel.logical_shards, 0);
  EXPECT_EQ(same.parallel.threads_per_process, 0);
}

TEST(FixedOrder, ContradictionsAreToldTogetherWithTheirNumbers) {
  const auto mentions = [](const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  };
  RunConfig config = fixed(12);
  config.parallel.threads_per_process = 4;
  mentions(problem(config, 5), {"--logical_shards 12", "5 processes", "1, 2, 3, 4, 6, 12", "--threads_per_process 4"});
  config = fixed(12);
  config.optimization.gradient_accumulation_steps = 4;
  mentions(problem(config, 2), {"--gradient_accumulation_steps 4", "12 / 2 = 6"});
  EXPECT_EQ(problem(config, 3), "");
  config = fixed(12);
  config.parallel.deterministic_reduce = false;
  mentions(problem(config, 2), {"--logical_shards 12", "--deterministic_reduce is not set"});
}

TEST(FixedOrder, AGivenDefaultCountsAsGiven) {
  const auto resolved = [](const char* origin) {
    return Value::make_object(
        {{"optimization",
          Value::make_object({{"gradient_accumulation_steps",
                               Value::make_object({{"value", Value::of(1)}, {"origin", Value::of(origin)}})}})}});
  };
  EXPECT_EQ(problem(fixed(12), 2, resolved("default")), "");
  EXPECT_NE(problem(fixed(12), 2, resolved("--gradient_accumulation_steps")), "");
  EXPECT_EQ(problem(fixed(2), 2, resolved("--gradient_accumulation_steps")), "");
}

}  // namespace
}  // namespace tessera::train
