// examples/fsdp_transformer and examples/zero_mlp as a user starts them.
#include <gtest/gtest.h>

#include <tessera/base/text.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace tessera;

const std::string examples = tessera::testing::build_path("examples/");

launch::Captured start(int ranks, const std::string& example, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> command;
  if (ranks > 1) command = {tessera::testing::build_path("tessera"), "launch", "--num_processes", concat(ranks)};
  command.push_back(examples + example);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch::run_and_capture(command, {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
}

void expect_learning(const launch::Captured& run, int ranks, double less_than) {
  std::vector<double> losses;
  for (const std::string& line : split(run.out, '\n')) {
    const auto at = line.find(": loss ");
    if (line.find("epoch ") == std::string::npos || at == std::string::npos) continue;
    EXPECT_NE(line.find(concat("(", ranks, " ranks)")), std::string::npos) << line;
    losses.push_back(std::strtod(line.c_str() + at + 7, nullptr));
  }
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  ASSERT_EQ(losses.size(), 4u) << run.out << run.err;
  EXPECT_GT(losses.front(), 2 * less_than) << run.out;
  EXPECT_LT(losses.back(), less_than) << run.out;
}

/// The number after "parameters " in the last line.
std::int64_t parameter_bytes(const launch::Captured& run) {
  const auto at = run.out.find("on this rank: parameters ");
  return at == std::string::npos ? -1 : std::atoll(run.out.c_str() + at + 25);
}

TEST(ShardingExamples, a_transformer_nobody_edited_is_sharded) {
  const auto alone = start(1, "fsdp_transformer"), shared = start(2, "fsdp_transformer");
  expect_learning(alone, 1, 0.5);
  expect_learning(shared, 2, 0.5);
  EXPECT_NEAR(static_cast<double>(parameter_bytes(shared)) / static_cast<double>(parameter_bytes(alone)), 0.5, 0.01)
      << shared.out << alone.out;
  EXPECT_NE(shared.out.find("unit blocks.3"), std::string::npos) << shared.out;
  expect_learning(start(2, "fsdp_transformer", {"--strategy=shard_grad_op"}), 2, 0.5);
}

TEST(ShardingExamples, zero_around_an_mlp) {
  for (const char* strategy : {"zero1", "zero2", "ddp"})
    expect_learning(start(2, "zero_mlp", {concat("--strategy=", strategy)}), 2, 0.3);
}

TEST(ShardingExamples, bad_arguments_end_with_exit_code_2) {
  const auto unknown = start(1, "fsdp_transformer", {"--nonsense"});
  EXPECT_EQ(unknown.exit_code, 2) << unknown.err;
  const auto strategy = start(1, "zero_mlp", {"--strategy=zero4"});
  EXPECT_EQ(strategy.exit_code, 2) << strategy.err;
  EXPECT_NE(strategy.err.find("zero3"), std::string::npos) << strategy.err;
}

}  // namespace
