// The examples of the faces as a user starts them.
#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace tessera;

launch::Captured start(int ranks, const std::string& example, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> command;
  if (ranks > 1) command = {tessera::testing::build_path("tessera"), "launch", "--nproc_per_node", concat(ranks)};
  command.push_back(tessera::testing::build_path("examples/") + example);
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch::run_and_capture(command, {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
}

std::vector<double> losses_of(const launch::Captured& run, const std::string& before) {
  std::vector<double> losses;
  for (const std::string& line : split(run.out, '\n'))
    if (const auto at = line.find(before); at != std::string::npos)
      losses.push_back(std::strtod(line.c_str() + at + before.size(), nullptr));
  return losses;
}

void expect_learning(const launch::Captured& run, const std::string& before) {
  const std::vector<double> losses = losses_of(run, before);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  ASSERT_GE(losses.size(), 2u) << run.out << run.err;
  EXPECT_LT(losses.back(), losses.front() / 2) << run.out;
}

TEST(FaceExamples, deepspeed_with_its_json) {
  for (const int ranks : {1, 2}) {
    const auto run = start(ranks, "deepspeed_simple");
    expect_learning(run, ": loss ");
    EXPECT_NE(run.out.find(concat("ZeRO-2, batch 64 = ", 64 / ranks, " x 1 x ", ranks)), std::string::npos)
        << run.out << run.err;
  }
  const auto unknown = start(1, "deepspeed_simple", {"--nonsense"});
  EXPECT_EQ(unknown.exit_code, 2) << unknown.err;
}

TEST(FaceExamples, accelerate_in_the_users_loop) {
  expect_learning(start(1, "accelerate_simple"), ": loss ");
  const TemporaryFolder folder;
  const auto sharded =
      start(2, "accelerate_simple", {"--fsdp", "full_shard auto_wrap", "--project_dir", folder.path()});
  expect_learning(sharded, ": loss ");
  EXPECT_NE(sharded.out.find(" of 203 right (2 ranks)"), std::string::npos) << sharded.out;
  EXPECT_EQ(list_folder(path_join(folder.path(), "checkpoints")), std::vector<std::string>{"checkpoint_3"})
      << "one of them stays";
  EXPECT_TRUE(path_exists(path_join(folder.path(), "model.safetensors")));
}

TEST(FaceExamples, trainer_with_flags) {
  expect_learning(start(1, "trainer_simple", {"--replicas", "2"}), "'loss': ");
  const auto sharded = start(2, "trainer_simple", {"--fsdp", "full_shard auto_wrap"});
  expect_learning(sharded, "'loss': ");
  EXPECT_NE(sharded.out.find("'eval_accuracy': "), std::string::npos) << sharded.out;
  EXPECT_EQ(start(1, "trainer_simple", {"--lerning_rate", "1"}).exit_code, 2);
}

}  // namespace
