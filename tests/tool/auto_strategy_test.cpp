// tessera train --strategy auto with real processes: its output, the file that it writes, and a later run that uses
// this file.

#include "program.h"

namespace tessera::testing {
namespace {

class AutoStrategyTest : public ToolTest {
 protected:
  launch::Environment own() const { return {{"XDG_CACHE_HOME", at("cache")}}; }
};

TEST_F(AutoStrategyTest, chooses_trains_and_goes_on_with_the_same) {
  const std::string out = "out", file = at("out/auto_strategy.yaml");
  const Strings two = {"--num_processes", "2", "--strategy", "auto"};
  const auto first = tessera(training(out) + two + Strings{"--max_steps", "2"}, own());
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.err.find("strategy auto: "), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("built-in figures for CPU"), std::string::npos) << first.err;
  const std::string chosen = read_file(file);
  EXPECT_NE(chosen.find("\nstrategy: "), std::string::npos) << chosen;

  const auto later =
      tessera(training(out) + two + Strings{"--max_steps", "3", "--resume_from_checkpoint", "last"}, own());
  ASSERT_EQ(later.exit_code, 0) << later.err;
  EXPECT_NE(later.err.find("strategy auto: settings from " + file), std::string::npos) << later.err;
  EXPECT_EQ(read_file(file), chosen);
}

TEST_F(AutoStrategyTest, what_cannot_be_is_said_before_anything_is_written) {
  const std::string out = "out";
  const std::vector<std::pair<Strings, std::string>> table = {
      {{"--strategy", "auto", "--zero_stage", "2"}, "either the planner or you choose the strategy"},
      {{"--strategy", "auto", "--num_processes", "2", "--tp_size", "4"}, "tp_size"},
      {{"--strategy", "autos"}, "did you mean auto?"}};
  for (const auto& [more, words] : table) {
    const auto run = tessera(training(out) + more, own());
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_NE(run.err.find(words), std::string::npos) << run.err;
    EXPECT_FALSE(path_exists(at(out)));
  }
}

}  // namespace
}  // namespace tessera::testing
