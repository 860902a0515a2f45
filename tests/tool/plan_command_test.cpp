// tessera plan as a user runs it.

#include "program.h"

namespace tessera::testing {
namespace {

TEST(PlanCommand, groups_of_a_mesh) {
  const auto run = tessera({"plan", "groups", "--mesh", "pp=2,dp=2,tp=2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* line :
       {"8 ranks\n  dense   pp=2 dp_replicate=1 dp_shard=2 cp=1 tp=2\n  expert  pp=2 edp=2 ep=1 etp=2\n",
        "\n     6     1             0         1   0   0   |    1    0    0\n",
        "\n  tp               4 x    2   [0 1] [2 3] [4 5] [6 7]\n",
        "\n  dp               4 x    2   [0 2] [1 3] [4 6] [5 7]\n",
        "\n  pp               4 x    2   [0 4] [1 5] [2 6] [3 7]\n", "of one rank each: dp_replicate, cp, ep\n"})
    EXPECT_NE(run.out.find(line), std::string::npos) << line << "\n" << run.out;
}

TEST(PlanCommand, one_rank_one_group_many_ranks) {
  const std::string grid = "tp=2,cp=2,dp=-1,ep=4,etp=1";
  const auto one = tessera({"plan", "groups", "--mesh", grid, "--world_size", "8", "--rank", "5", "--group", "dp-cp"});
  EXPECT_NE(one.out.find("\n  dp-cp            4   [1 3 5 7]\n"), std::string::npos) << one.out << one.err;
  EXPECT_EQ(one.out.find("etp  "), std::string::npos) << one.out;
  const Strings many = {"plan", "groups", "--mesh", grid, "--world_size", "128"};
  EXPECT_NE(tessera(many).out.find("64 more (--all prints them"), std::string::npos);
  EXPECT_NE(tessera(many + Strings{"--all"}).out.find("\n   127 "), std::string::npos);
  EXPECT_NE(
      tessera(many + Strings{"--ranks_per_host=9"}).out.find("warning: tp=2 does not divide the 9 ranks of a host"),
      std::string::npos);
}

TEST(PlanCommand, what_is_wrong_is_said) {
  const std::vector<std::pair<Strings, std::string>> table = {
      {{"plan"}, "say what to plan"},
      {{"plan", "grups"}, "unknown 'grups'"},
      {{"plan", "groups"}, "--mesh"},
      {{"plan", "groups", "--mesh", "tp=3", "--world_size", "8"}, "tp=3 does not divide the 8 ranks"},
      {{"plan", "groups", "--mesh", "tp=2", "--rank", "2"}, "--rank 2: a whole number from 0 to 1"},
      {{"plan", "groups", "--mesh", "tp=2", "--group", "tq"}, "no axis 'tq'"},
      {{"plan", "groups", "--mesh", "tp=1073741823"}, "at most 16777216"},
  };
  for (const auto& [arguments, words] : table) {
    const auto run = tessera(arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_NE(run.err.find(words), std::string::npos) << run.err;
  }
  EXPECT_EQ(tessera({"plan", "groups", "--help"}).exit_code, 0);
}

}  // namespace
}  // namespace tessera::testing
