// The examples of the faces on the simulated device: they train there without findings.
#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <string>
#include <vector>

namespace tessera::testing {
namespace {

using Strings = std::vector<std::string>;

/// Starts an example in `ranks` processes and returns its output. The device must have worked, without a finding.
std::string run(int ranks, const std::string& example, const Strings& arguments, int devices = 2) {
  const TemporaryFolder folder;
  Strings command;
  if (ranks > 1) command = {build_path("tessera"), "launch", "--nproc_per_node", concat(ranks)};
  command.push_back(build_path("examples/") + example);
  command.insert(command.end(), arguments.begin(), arguments.end());
  const launch::Captured captured = launch::run_and_capture(command,
                                                            {{"OMP_NUM_THREADS", "1"},
                                                             {"LD_LIBRARY_PATH", build_path("double")},
                                                             {"DOUBLE_DEVICES", concat(devices)},
                                                             {"DOUBLE_REPORT", path_join(folder.path(), "report")}},
                                                            patience(120));
  EXPECT_EQ(captured.exit_code, 0) << captured.out << captured.err;
  std::size_t operations = 0;
  for (const std::string& file : list_folder(folder.path())) {
    for (const std::string& line : split(read_file(path_join(folder.path(), file)), '\n')) {
      EXPECT_FALSE(line.starts_with("FINDING")) << line;
      operations += line.starts_with("OPERATION") ? 1 : 0;
    }
  }
  EXPECT_GT(operations, 10U) << "the device had nothing to do";
  return captured.out + captured.err;
}

TEST(DeviceExamples, AcceleratorTakesTheGpu) {
  EXPECT_NE(run(1, "accelerate_simple", {}).find("203 of 203 right"), std::string::npos);
  EXPECT_NE(run(2, "accelerate_simple", {"--fsdp", "full_shard auto_wrap"}).find(" of 203 right"), std::string::npos);
}

TEST(DeviceExamples, DeepSpeedTakesTheGpu) {
  EXPECT_NE(run(1, "deepspeed_simple", {}).find("ZeRO-2"), std::string::npos);
}

/// The model is made before the Trainer; TrainingArguments loads the plug-in earlier still.
TEST(DeviceExamples, TrainerTakesTheGpuItIsTold) {
  EXPECT_NE(run(1, "trainer_simple", {"--device", "cuda"}, 1).find("'eval_accuracy': 1"), std::string::npos);
  EXPECT_NE(run(2, "trainer_simple", {"--device", "cuda", "--bf16", "--fsdp", "full_shard"}).find("'eval_accuracy'"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
