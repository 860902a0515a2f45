/// examples/data_parallel as a user starts it: the result does not depend on the number of replicas.
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

launch::Captured start(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{tessera::testing::build_path("examples/data_parallel")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch::run_and_capture(command, {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
}

std::vector<double> losses(const launch::Captured& run) {
  std::vector<double> result;
  for (const std::string& line : split(run.out, '\n')) {
    const auto at = line.find(": loss ");
    if (at != std::string::npos) result.push_back(std::strtod(line.c_str() + at + 7, nullptr));
  }
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  return result;
}

TEST(DataParallelExample, replicas_learn_what_one_learns) {
  const auto one = losses(start({"--replicas=1"})), three = losses(start({"--replicas=3"}));
  ASSERT_EQ(one.size(), 4u);
  ASSERT_EQ(three.size(), 4u);
  EXPECT_LT(one.back(), one.front() / 3);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(three[i], one[i], 2e-3 * one[i]) << i;
}

TEST(DataParallelExample, bad_arguments_end_with_exit_code_2) { EXPECT_EQ(start({"--replicas=none"}).exit_code, 2); }

}  // namespace
