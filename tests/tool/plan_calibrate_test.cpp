// tessera plan calibrate as a user runs it: the file it writes, and the commands that read it.

#include "program.h"

namespace tessera::testing {
namespace {

class CalibrateTest : public ToolTest {
 protected:
  launch::Environment own() const { return {{"XDG_CACHE_HOME", at("cache")}, {"OMP_NUM_THREADS", "1"}}; }
};

TEST_F(CalibrateTest, this_machine_is_measured_and_planned_with) {
  const Strings check = {"plan", "check", "--gpus", "2xthis-machine", "--json", "--config_name", "gpt2-tiny"};
  const auto before = tessera(check, own());
  EXPECT_EQ(before.exit_code, 2);
  EXPECT_NE(before.err.find("run `tessera plan calibrate`"), std::string::npos) << before.err;

  const auto run = tessera({"plan", "calibrate", "--processes", "2", "--seconds", "3"}, own());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* words : {"2 processes at once", "product_fp32", "a step over its operations", "all_reduce_shared x2",
                            "disk: ", "xthis-machine"})
    EXPECT_NE(run.out.find(words), std::string::npos) << words << "\n" << run.out;
  const Strings files = list_folder(at("cache/tessera/hardware"));
  ASSERT_EQ(files.size(), 1u);
  const Value file = read_json(path_join(at("cache/tessera/hardware"), files[0]));
  ASSERT_EQ(file.at("measured").items().size(), 1u);
  EXPECT_GE(file.at("measured").items()[0].at("between_fp32").as_real(), 0.8);
  EXPECT_GT(file.at("fp32_flops").as_real(), 1e8);
  EXPECT_GT(file.at("host_memory").as_real(), 1e8);

  const auto after = tessera(check, own());
  ASSERT_EQ(after.exit_code, 0) << after.err;
  EXPECT_GT(parse_json(after.out, "out").at("step_seconds").as_real(), 0);
  EXPECT_EQ(tessera({"plan", "hardware", "this-machine"}, own()).exit_code, 0);
}

TEST_F(CalibrateTest, what_is_wrong_is_said) {
  const std::vector<std::pair<Strings, std::string>> table = {
      {{"--processes", "2,1"}, "ascending numbers"},
      {{"--seconds", "1", "--processes", "1"}, "--seconds 1: expected a value from 3"},
      {{"--output", at("none/x.json")}, "no such folder"},
      {{"--second", "9"}, "--second"},
  };
  for (const auto& [arguments, words] : table) {
    const auto run = tessera(Strings{"plan", "calibrate"} + arguments, own());
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_NE(run.err.find(words), std::string::npos) << run.err;
  }
  EXPECT_FALSE(path_exists(at("cache/tessera/hardware")));
}

}  // namespace
}  // namespace tessera::testing
