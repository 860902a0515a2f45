// examples/tensor_parallel as a user starts it.
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

launch::Captured start(int ranks, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> command;
  if (ranks > 1) command = {tessera::testing::build_path("tessera"), "launch", "--num_processes", concat(ranks)};
  command.push_back(tessera::testing::build_path("examples/tensor_parallel"));
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch::run_and_capture(command, {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
}

std::vector<double> losses(const launch::Captured& run) {
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  std::vector<double> found;
  for (const std::string& line : split(run.out, '\n'))
    if (const auto at = line.find(": loss "); line.find("epoch ") != std::string::npos && at != std::string::npos)
      found.push_back(std::strtod(line.c_str() + at + 7, nullptr));
  EXPECT_EQ(found.size(), 4u) << run.out << run.err;
  return found;
}

TEST(TensorExample, has_the_losses_of_one_process) {
  const auto alone = losses(start(1, {"--tp=1"})), cut = losses(start(2));
  ASSERT_EQ(cut.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(cut[i], alone[i], 2e-3) << "epoch " << i;
  EXPECT_LT(alone.back(), 0.5 * alone.front());
  const auto sharded = losses(start(4, {"--strategy=full_shard"}));
  ASSERT_EQ(sharded.size(), 4u);
  EXPECT_LT(sharded.back(), 0.5 * sharded.front());
}

TEST(TensorExample, bad_arguments_end_with_exit_code_2) {
  const auto run = start(2, {"--tp=3"});
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_NE(run.err.find("tp=3"), std::string::npos) << run.err;
}

}  // namespace
