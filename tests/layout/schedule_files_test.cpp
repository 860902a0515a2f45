#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/table.h>
#include <tests/error_of.h>
#include <tests/paths.h>

#include <cstdio>
#include <filesystem>

#include <unistd.h>

namespace tessera::layout::schedule {
namespace {

using testing::error_of;

const std::string fixtures = testing::source_path("tests/fixtures/pipeline_schedules");

TEST(ScheduleFiles, both_forms_round_trip) {
  for (const ScheduleRow& row : schedules())
    for (const int p : {1, 2, 5})
      for (const int m : {1, 4, 11}) {
        const Schedule made = make_schedule(row.name, {p, 0, m});
        for (const Schedule& schedule : {made, with_messages(with_sharding(made, Gathering::per_batch, true))}) {
          ASSERT_EQ(parse_text(to_text(schedule), "text"), schedule);
          Schedule nameless = schedule;
          nameless.name = "";
          ASSERT_EQ(parse_csv(to_csv(schedule), "csv"), nameless);
          ASSERT_EQ(parse_schedule(to_text(schedule), "text"), schedule);
          ASSERT_EQ(parse_schedule(to_csv(schedule), "csv"), nameless);
        }
      }
}

/// PyTorch 2.11's output (tests/parity/pytorch_schedules.py) is valid and in the same order as ours.
TEST(ScheduleFiles, schedules_of_pytorch) {
  int equal = 0;
  for (const std::string& name : list_folder(fixtures)) {
    if (!name.ends_with(".csv")) continue;
    const std::string pytorch = name.substr(0, name.find('-'));
    Shape shape;
    ASSERT_EQ(std::sscanf(name.c_str() + name.find("-p"), "-p%d-v%d-m%d", &shape.ranks, &shape.stages_per_rank,
                          &shape.micro_batches),
              3)
        << name;
    const Schedule theirs = read_schedule(path_join(fixtures, name));
    if (pytorch == "1F1B") {
      // PyTorch's version of 1F1B (Schedule1F1B._get_pipeline_order) counts the last rank's forwards from 1.
      EXPECT_NE(error_of([&] { check(theirs); }).find("is missing"), std::string::npos) << name;
      continue;
    }
    EXPECT_EQ(error_of([&] { check(theirs); }), "") << name;
    EXPECT_EQ(has_messages(theirs), name.find("compute_comms") != std::string::npos) << name;
    if (has_messages(theirs)) {
      EXPECT_EQ(error_of([&] { check(theirs, {.outstanding = 1}); }), "") << name;
    }
    Schedule ours = make_schedule(pytorch, shape);
    ours.name = "";
    // PyTorch runs the last stage's backwards from the last micro-batch on.
    if (pytorch == "LoopedBFS") {
      EXPECT_NE(computations_of(theirs), ours) << name;
      continue;
    }
    EXPECT_EQ(computations_of(theirs), ours) << name;
    ++equal;
  }
  EXPECT_EQ(equal, 19);
}

TEST(ScheduleFiles, csv_as_people_write_it) {
  const Schedule schedule = parse_csv("0F0, 0F1 ,,\"\",0B0,0B1\r\n,1F0,1F1,1I0,1W0,1B1\r\n\r\n\n", "csv");
  EXPECT_EQ(schedule, parse_text("tessera-schedule 1\nmicro_batches 2 # or more\n\nstages 0 1\nrank 1: 1F0 1F1 1I0\n"
                                 "rank 0 : 0F0\t0F1 0B0 0B1\nrank 1: 1W0 1B1",
                                 "text"));
  check(schedule);
  EXPECT_EQ(parse_csv("0UNSHARD,0F0,0RESHARD,0GATHER,0B0,0REDUCE_GRAD", "csv").ranks[0].back().kind, Kind::reduce);
  EXPECT_EQ(to_csv(parse_csv("0GATHER,0F0,0B0,0REDUCE\n", "csv")), "0UNSHARD,0F0,0B0,0REDUCE_GRAD\n");
}

TEST(ScheduleFiles, size_is_limited) {
  const std::string path = path_join(::testing::TempDir(), concat("schedule-", ::getpid(), ".csv"));
  write_file_atomically(path, "0F0\n");
  EXPECT_EQ(read_schedule(path).micro_batches, 1);
  std::filesystem::resize_file(path, (std::uint64_t{128} << 20) + 1);  // a sparse file: no data is written
  EXPECT_NE(error_of([&] { (void)read_schedule(path); }).find("at most 134217728 are"), std::string::npos);
  remove_tree(path);
}

TEST(ScheduleFiles, errors_have_a_place) {
  const auto csv = [](const std::string& text) { return error_of([&] { (void)parse_csv(text, "a.csv"); }); };
  EXPECT_EQ(csv(""), "a.csv: it has no actions");
  EXPECT_EQ(
      csv("0F0,0B0\n1F0, 1X0\n"),
      "a.csv:2:7: unknown action 'X'; the actions are F, I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, GATHER, RESHARD, "
      "REDUCE");
  EXPECT_EQ(csv("0F0,0SENF_F0"), "a.csv:1:6: unknown action 'SENF_F'; did you mean SEND_F?");
  EXPECT_EQ(csv("0F0,F0"), "a.csv:1:5: 'F0' is not an action: stage, kind, micro-batch, as in 2F3 or 0SEND_F1");
  EXPECT_EQ(csv("0F0,0F"), "a.csv:1:5: '0F' lacks the micro-batch: 0F0 or another number");
  EXPECT_EQ(csv("0F0,0UNSHARD3"), "a.csv:1:13: UNSHARD is for a stage; no micro-batch may follow");
  EXPECT_EQ(csv("0F0,(0F1;0B0)OVERLAP"),
            "a.csv:1:5: '(0F1;0B0)OVERLAP' is not an overlapped pair: (0F4;7B1)OVERLAP_F_B");
  EXPECT_EQ(csv("0F0\n\n1F0"), "a.csv:2:1: a line without an action: every rank needs a stage");
  EXPECT_EQ(csv("0F99999999999"), "a.csv:1:3: '99999999999' is not a micro-batch: a whole number from 0 to 1048575");
  EXPECT_EQ(csv("1000000F0"), "a.csv: stage 1000000 is the last of 1000001, but there are only 1 actions");
  EXPECT_EQ(csv("0F0,2F0,0B0"), "a.csv: stage 1 has no action, but stage 2 has");
  std::string ranks;
  for (int rank = 0; rank <= 1 << 20; ++rank) ranks += "0F0\n";
  EXPECT_EQ(csv(ranks), "a.csv:1048577:1: more than 1048576 ranks (lines)");
  const auto text = [](const std::string& lines) { return error_of([&] { (void)parse_text(lines, "a.txt"); }); };
  const std::string head = "tessera-schedule 1 mine\nmicro_batches 1\n";
  EXPECT_EQ(text("# only\n"), "a.txt:1:1: the file is empty: it must begin with 'tessera-schedule 1'");
  EXPECT_EQ(text("tessera-schedule 2\n"), "a.txt:1:18: version '2'; only 1 is supported");
  EXPECT_EQ(text(head), "a.txt:2:16: the line 'stages' with the rank of every stage is missing");
  EXPECT_EQ(text(head + "stages 0 1\nrank 0: 0F0 0B0\n"), "a.txt:4:16: rank 1 has no action");
  EXPECT_EQ(text(head + "stages 0 1\nrank 2: 0F0\n"), "a.txt:4:6: '2' is not a rank: a whole number from 0 to 1");
  EXPECT_EQ(text(head + "stages 0 5\n"), "a.txt:3:11: 6 ranks for 2 stages: every rank needs a stage");
  EXPECT_EQ(text(head + "stage 0\n"), "a.txt:3:1: 'stage': did you mean stages?");
  EXPECT_EQ(text(head + "stages 0\nrank 0: 0F0 0F0+\n"),
            "a.txt:4:17: '' is not an action: stage, kind, micro-batch, as in 2F3 or 0SEND_F1");
  EXPECT_EQ(text(head + "micro_batches 2\n"), "a.txt:3:1: 'micro_batches' occurs a second time");
  EXPECT_EQ(text(head + "rank 0: 0F0\n"), "a.txt:3:1: the line 'stages' must precede it");
}

}  // namespace
}  // namespace tessera::layout::schedule
