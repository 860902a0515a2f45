// examples/ddp_simple as a user starts it: with tessera launch, with torchrun's variables, with
// torch.distributed.launch's argument.
#include <gtest/gtest.h>

#include <tessera/base/text.h>
#include <tessera/launch/agent/ports.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace tessera;

const std::string example = tessera::testing::build_path("examples/ddp_simple");

launch::Captured start(const std::vector<std::string>& command, launch::Environment environment = {}) {
  environment.emplace_back("OMP_NUM_THREADS", "1");
  return launch::run_and_capture(command, environment, tessera::testing::patience(120));
}

/// The losses of lines like "epoch 3: loss 0.1234 (2 ranks)".
std::vector<double> losses_of(const std::string& output, int ranks) {
  std::vector<double> losses;
  for (const std::string& line : split(output, '\n')) {
    const auto at = line.find(": loss ");
    if (line.find("epoch ") == std::string::npos || at == std::string::npos) continue;
    EXPECT_NE(line.find(concat("(", ranks, " ranks)")), std::string::npos) << line;
    losses.push_back(std::strtod(line.c_str() + at + 7, nullptr));
  }
  return losses;
}

void expect_learning(const launch::Captured& run, int ranks) {
  const auto losses = losses_of(run.out, ranks);
  ASSERT_EQ(losses.size(), 5u) << run.out << run.err;
  EXPECT_GT(losses.front(), 1);
  EXPECT_LT(losses.back(), losses.front() / 3) << run.out << run.err;
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

TEST(DdpExample, learns_under_tessera_launch) {
  expect_learning(start({tessera::testing::build_path("tessera"), "launch", "--num_processes", "2", example}), 2);
}

TEST(DdpExample, learns_alone) { expect_learning(start({example}), 1); }

TEST(DdpExample, learns_under_torchruns_variables) {
  const std::string port = concat(launch::choose_port("127.0.0.1"));
  launch::Captured runs[2];
  const auto rank = [&](int r) {
    const std::string text = concat(r);
    runs[r] = start({example, "--local-rank=" + text}, {{"RANK", text},
                                                        {"LOCAL_RANK", text},
                                                        {"WORLD_SIZE", "2"},
                                                        {"LOCAL_WORLD_SIZE", "2"},
                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                        {"MASTER_PORT", port}});
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  expect_learning(runs[0], 2);
  EXPECT_EQ(runs[1].exit_code, 0) << runs[1].err;
  EXPECT_TRUE(losses_of(runs[1].out, 2).empty()) << "only rank 0 prints";
}

TEST(DdpExample, bad_arguments_end_with_exit_code_2) {
  const auto run = start({example, "--nonsense"});
  EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
  EXPECT_NE(run.err.find("--nonsense"), std::string::npos) << run.out << run.err;
}

}  // namespace
