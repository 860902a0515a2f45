/// examples/record_step as a user starts it, and `tessera plan` with the file it wrote.
#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <string>
#include <vector>

namespace {

using namespace tessera;

launch::Captured start(std::vector<std::string> command) {
  command[0] = tessera::testing::build_path(command[0]);
  return launch::run_and_capture(command, {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
}

TEST(RecordStepExample, its_file_is_planned) {
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "recorded.json");
  const auto recorded = start({"examples/record_step", file});
  ASSERT_EQ(recorded.exit_code, 0) << recorded.out << recorded.err;
  EXPECT_NE(recorded.out.find("MyTransformer: 4 layers, 210.3 k parameters"), std::string::npos) << recorded.out;

  const std::vector<std::string> plan = {"tessera", "plan",           "--model", file,          "--gpus",
                                         "8xH100",  "--global_batch", "256",     "--precision", "fp32"};
  const auto planned = start(plan);
  ASSERT_EQ(planned.exit_code, 0) << planned.out << planned.err;
  EXPECT_NE(planned.out.find("on 8xH100: 256 rows of 16 tokens a step, fp32"), std::string::npos) << planned.out;
  EXPECT_NE(planned.out.find("tessera launch --num_processes 8 YOUR_PROGRAM"), std::string::npos) << planned.out;

  auto as_json = plan;
  as_json.emplace_back("--json");
  const auto json = start(as_json);
  ASSERT_EQ(json.exit_code, 0) << json.out << json.err;
  const Value answer = parse_json(json.out, "answer");
  EXPECT_NE(answer.at("plans").items().at(0).at("command").as_string().find("YOUR_PROGRAM"), std::string::npos);
}

TEST(RecordStepExample, says_what_it_wants) {
  const auto run = start({"examples/record_step"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("expected the file to write"), std::string::npos) << run.err;
}

}  // namespace
