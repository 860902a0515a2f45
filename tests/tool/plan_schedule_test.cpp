// tessera plan schedule as a user runs it.

#include "program.h"

namespace tessera::testing {
namespace {

class PlanSchedule : public ToolTest {};

Strings planned(const Strings& more) { return Strings{"plan", "schedule"} + more; }

TEST_F(PlanSchedule, one_schedule_and_its_drawing) {
  const auto run =
      tessera(planned({"--schedule", "ScheduleZBVZeroBubble", "--pp=4", "--microbatches=8", "--draw=text"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* line : {"schedule zbv: right. 4 ranks, 8 stages, 8 micro-batches\n",
                           "\n  total     25.5; a pipeline that is always full takes 24\n",
                           "\n  bubble    1.5, 6.25 % of that; inside a rank 0\n", "\n   3  3 4                   8 ",
                           "\nrank 3  ...FfFfFfFfiwFIW"})
    EXPECT_TRUE(contains(run.out, line)) << line << "\n" << run.out;
  const auto svg =
      tessera(planned({"--schedule", "1f1b", "--pp_size", "2", "--num_microbatches", "3", "--draw", "svg"}));
  EXPECT_TRUE(svg.out.starts_with("<svg ") && svg.out.ends_with("</svg>\n")) << svg.out << svg.err;
}

TEST_F(PlanSchedule, files_there_and_back) {
  const Strings made = {"--schedule", "dualpipev", "--pp", "2", "--microbatches", "5", "--gathering", "per_batch"};
  const auto write = tessera(planned(made + Strings{"--csv", at("a.csv"), "--csv_format", "compute_comms", "--save",
                                                    at("a.txt"), "--draw", "svg", "--output", at("a.svg")}));
  EXPECT_EQ(write.exit_code, 0) << write.err;
  EXPECT_TRUE(contains(read_file(at("a.csv")), "OVERLAP_F_B")) << read_file(at("a.csv"));
  EXPECT_TRUE(contains(read_file(at("a.csv")), "0REDUCE_GRAD"));
  EXPECT_TRUE(read_file(at("a.txt")).starts_with("tessera-schedule 1 dualpipev\nmicro_batches 5\nstages 0 1 1 0\n"));
  EXPECT_TRUE(read_file(at("a.svg")).starts_with("<svg "));
  for (const char* name : {"a.csv", "a.txt"}) {
    const auto check = tessera(planned({"--check", at(name), "--pp", "2", "--microbatches", "5"}));
    EXPECT_EQ(check.exit_code, 0) << check.err;
    EXPECT_TRUE(contains(check.out, ": right. 2 ranks, 4 stages, 5 micro-batches")) << check.out;
  }
  EXPECT_EQ(
      tessera(planned({"--schedule", at("a.txt"), "--csv", at("b.csv"), "--csv_format", "compute_comms"})).exit_code,
      0);
  EXPECT_EQ(read_file(at("b.csv")), read_file(at("a.csv")));
}

TEST_F(PlanSchedule, side_by_side) {
  const auto run = tessera(planned({"--compare", "--pp", "4", "--microbatches", "8"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* line : {"\n1f1b                             1        33         9    37.5 %",
                           "\nzbv                              2      25.5       1.5    6.25 %"})
    EXPECT_TRUE(contains(run.out, line)) << line << "\n" << run.out;
  EXPECT_TRUE(contains(tessera(planned({"--list"})).out, "ScheduleLoopedBFS") ||
              contains(tessera(planned({"--list"})).out, "LoopedBFS"));
  EXPECT_TRUE(contains(tessera(planned({"--help"})).out, "--stages_per_rank V"));
}

TEST_F(PlanSchedule, a_bound_on_messages_stops_no_comparison) {
  const Strings shape = {"--pp", "2", "--microbatches", "8", "--stages_per_rank", "2"};
  const auto run = tessera(planned(Strings{"--compare", "--outstanding", "1"} + shape));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "\nlooped_bfs                       2  needs --outstanding ")) << run.out;
  EXPECT_TRUE(contains(run.out, "\nzbv  ")) << run.out;
  const auto one = tessera(planned(Strings{"--schedule", "looped_bfs", "--outstanding", "1"} + shape));
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_TRUE(contains(one.err, "deadlock") && contains(one.err, "; it needs --outstanding ")) << one.err;
}

TEST_F(PlanSchedule, only_formulas_that_hold_are_printed) {
  const auto printed = [](const Strings& arguments) {
    const auto run = tessera(planned(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  };
  const Strings shape = {"--pp", "4", "--microbatches", "9"};
  const Strings interleaved = Strings{"--schedule", "interleaved"} + shape;
  EXPECT_TRUE(contains(printed(interleaved), "\nbubble (p - 1) (F + B), with"));
  EXPECT_TRUE(contains(printed(interleaved + Strings{"--group_size", "5"}),
                       "\nbubble no formula for this shape and these costs\n"));
  EXPECT_TRUE(contains(printed(interleaved + Strings{"--message_time", "0.1"}), "\nbubble no formula for this shape"));
  EXPECT_TRUE(contains(printed({"--schedule", "zb_h1", "--pp", "4", "--microbatches", "2"}), "\nbubble no formula"));
  EXPECT_TRUE(contains(printed(Strings{"--schedule", "zb_h1", "--forward_time", "0.5", "--input_gradient_time", "3",
                                       "--weight_gradient_time", "5"} +
                               shape),
                       "\nbubble (p - 1) max(F, I, F + I - W)\n"));
  // The schedule's name in a file need not be right.
  write_file_atomically(at("gpipe.txt"),
                        "tessera-schedule 1 zbv\nmicro_batches 2\nstages 0 1\n"
                        "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1F1 1B0 1B1\n");
  const std::string gpipe = printed({"--check", at("gpipe.txt")});
  EXPECT_TRUE(contains(gpipe, "\nthe computations are those of gpipe\nbubble (p - 1) (F + B)\n")) << gpipe;
  write_file_atomically(at("own.txt"),
                        "tessera-schedule 1 zbv\nmicro_batches 2\nstages 0 1\n"
                        "rank 0: 0F0 0F1 0B1 0B0\nrank 1: 1F0 1F1 1B1 1B0\n");
  const std::string own = printed({"--check", at("own.txt")});
  EXPECT_TRUE(contains(own, "\nno formulas: no generator of --list makes it") && !contains(own, "\nbubble (")) << own;
}

TEST_F(PlanSchedule, many_ranks_are_quick_or_refused_with_numbers) {
  const Strings shape = {"--pp", "20000", "--microbatches", "1"};
  EXPECT_EQ(tessera(planned(Strings{"--schedule", "1f1b"} + shape)).exit_code, 0);
  const auto run = tessera(planned(Strings{"--schedule", "zbv"} + shape));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(contains(run.err, "20000 ranks x 2 stages x 40000 micro-batches")) << run.err;
}

TEST_F(PlanSchedule, what_is_wrong_is_said) {
  write_file_atomically(at("circle.csv"), "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  write_file_atomically(at("typo.csv"), "0F0,0B0\n1F0,1G0\n");
  const Strings shape = {"--pp", "4", "--microbatches", "8"};
  const std::vector<std::pair<Strings, std::string>> table = {
      {{}, "--schedule is missing"},
      {{"--schedule", "zvb", "--pp", "4", "--microbatches", "8"}, "unknown pipeline schedule 'zvb'; did you mean zbv?"},
      {{"--schedule", "zbv", "--pp", "4"}, "--microbatches is missing"},
      {{"--schedule", "zbv", "--pp", "0", "--microbatches", "8"}, "--pp 0: expected a whole number from 1"},
      {Strings{"--schedule", "zbv", "--stages_per_rank", "3"} + shape, "needs exactly 2: the nearest is 2"},
      {Strings{"--schedule", "zbv", "--draw", "svgg"} + shape, "did you mean svg?"},
      {Strings{"--schedule", "zbv", "--drow", "svg"} + shape, "unknown flag --drow; did you mean --draw?"},
      {Strings{"--schedule", "zbv", "--overlap", "2"} + shape, "overlap is 2"},
      {Strings{"--schedule", "zbv", "--output", at("x")} + shape, "add --draw text or --draw svg"},
      {{"--check", at("circle.csv")},
       "deadlock: rank 0 at position 1 (0B0) waits for 1B0 of rank 1; rank 1 at position 0"},
      {{"--check", at("typo.csv")}, "typo.csv:2:6: unknown action 'G'"},
      {{"--check", at("none.csv")}, "none.csv"},
      {Strings{"--check", at("circle.csv")} + shape, "circle.csv: rank 0"},
  };
  for (const auto& [arguments, words] : table) {
    const auto run = tessera(planned(arguments));
    EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
    EXPECT_TRUE(contains(run.err, words)) << words << "\n" << run.err;
  }
}

}  // namespace
}  // namespace tessera::testing
