/// examples/collectives_tour as a user starts it; its output matches the definitions of the collectives.
#include <gtest/gtest.h>

#include <tessera/base/text.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <string>
#include <vector>

namespace {

using namespace tessera;

launch::Captured start(int ranks, const std::vector<std::string>& arguments = {}) {
  std::vector<std::string> command;
  if (ranks > 1) command = {tessera::testing::build_path("tessera"), "launch", "--nproc_per_node", concat(ranks)};
  command.push_back(tessera::testing::build_path("examples/collectives_tour"));
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch::run_and_capture(command, {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
}

/// The lines after "NAME: ..." up to the next empty line, with runs of spaces collapsed.
std::vector<std::string> table(const std::string& out, const std::string& name) {
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line : split(out, '\n')) {
    const std::string prefix = "[rank 0] ";  // the launcher's prefix
    if (line.starts_with(prefix)) line.erase(0, prefix.size());
    if (line.empty()) inside = false;
    if (inside) {
      std::string row;
      for (const char c : line)
        if (c != ' ' || (!row.empty() && row.back() != ' ')) row += c;
      rows.push_back(row);
    }
    if (line.starts_with(name + ": ")) inside = true;
  }
  return rows;
}

TEST(CollectivesTour, prints_what_moves_between_four_ranks) {
  const auto run = start(4);
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const auto expect = [&](const char* name, std::vector<std::string> rows) {
    rows.insert(rows.begin(), "rank before after");
    EXPECT_EQ(table(run.out, name), rows) << name << '\n' << run.out;
  };
  expect("broadcast", {"0 00 01 00 01", "1 10 11 00 01", "2 20 21 00 01", "3 30 31 00 01"});
  expect("scatter", {"0 00 01 02 03 04 05 06 07 00 01", "1 - 02 03", "2 - 04 05", "3 - 06 07"});
  expect("gather", {"0 00 01 00 01 10 11 20 21 30 31", "1 10 11 -", "2 20 21 -", "3 30 31 -"});
  expect("reduce", {"0 00 01 60 64", "1 10 11 10 11", "2 20 21 20 21", "3 30 31 30 31"});
  expect("all-reduce", {"0 00 01 60 64", "1 10 11 60 64", "2 20 21 60 64", "3 30 31 60 64"});
  expect("all-gather", {"0 00 01 00 01 10 11 20 21 30 31", "1 10 11 00 01 10 11 20 21 30 31",
                        "2 20 21 00 01 10 11 20 21 30 31", "3 30 31 00 01 10 11 20 21 30 31"});
  expect("reduce-scatter", {"0 00 01 02 03 60", "1 10 11 12 13 64", "2 20 21 22 23 68", "3 30 31 32 33 72"});
  expect("all-to-all", {"0 00 01 02 03 00 10 20 30", "1 10 11 12 13 01 11 21 31", "2 20 21 22 23 02 12 22 32",
                        "3 30 31 32 33 03 13 23 33"});
  expect("send, recv", {"0 00 01 30 31", "1 10 11 00 01", "2 20 21 10 11", "3 30 31 20 21"});
  EXPECT_NE(run.out.find("barrier: no rank left before the last one"), std::string::npos) << run.out;
}

TEST(CollectivesTour, works_alone_and_refuses_arguments) {
  const auto alone = start(1);
  EXPECT_EQ(alone.exit_code, 0) << alone.out << alone.err;
  EXPECT_NE(alone.out.find("1 ranks, backend local"), std::string::npos) << alone.out;
  EXPECT_EQ(start(1, {"--nonsense"}).exit_code, 2);
}

}  // namespace
