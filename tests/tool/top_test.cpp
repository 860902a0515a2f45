#include "program.h"

#include <tessera/base/clock.h>
#include <tessera/launch/agent/board.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <thread>

namespace tessera::testing {
namespace {

using launch::Board;
using launch::RankSlot;
using launch::RankState;

/// Other jobs may run on the machine, so every call selects the board of this test.
class TopTest : public ::testing::Test {
 protected:
  TopTest() : board_(Board::create(2, 0, 2, "train of the test")) {
    board_.header().agent_pid = getpid();
    for (int i = 0; i < 2; ++i) {
      RankSlot& slot = board_.slot(i);
      slot.rank = i;
      slot.pid = getpid();
      slot.state = RankState::running;
      slot.step = 7 + i;
      slot.total_steps = 100;
      slot.tokens_per_second = 3200;
      slot.loss = 2.5;
      slot.memory_bytes = std::int64_t{512} << 20;
      launch::write_text(slot.phase, "backward");
    }
    beat();
  }

  void beat() {
    for (int i = 0; i < 2; ++i)
      if (i != silent_) board_.slot(i).heartbeat_ns = monotonic_ns();
  }

  void write_entry(RankSlot& slot, launch::Status status) {
    launch::Entry entry;
    entry.op = launch::Op::all_reduce;
    entry.sequence = 42;
    entry.payload_bytes = 1 << 20;
    entry.status = status;
    entry.start_ns = entry.end_ns = monotonic_ns();
    launch::write_text(entry.group, "world");
    launch::write_text(entry.tag, "bucket 3");
    slot.ring[0] = entry;
    slot.next_entry = 1;
  }

  /// Runs `tessera top` while the ranks keep updating their slots, except `silent_`.
  launch::Captured top(const Strings& more = {}) {
    const std::jthread signs([this](const std::stop_token& stop) {
      for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(20))) beat();
    });
    return tessera(Strings{"top", "--pid", concat(getpid())} + more);
  }

  Board board_;
  int silent_ = -1;
};

TEST_F(TopTest, ShowsEachRank) {
  write_entry(board_.slot(0), launch::Status::started);
  const auto run = top({"--once"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Strings lines = split(trim(run.out), '\n');
  ASSERT_EQ(lines.size(), 6u) << run.out;
  EXPECT_TRUE(lines[0].starts_with(concat("train of the test: agent ", getpid(), ", 2 ranks"))) << lines[0];
  EXPECT_TRUE(contains(lines[1], "tok/s") && contains(lines[1], "comm%")) << lines[1];
  EXPECT_TRUE(contains(lines[2], " running ") && contains(lines[2], "7/100") && contains(lines[2], "3.2 k") &&
              contains(lines[2], "2.5000") && contains(lines[2], "512.0 MiB"))
      << lines[2];
  EXPECT_TRUE(contains(lines[3], "backward; ") && contains(lines[3], " in all_reduce #42 of world, 1.0 MiB, bucket 3"))
      << lines[3];
  EXPECT_TRUE(contains(lines[4], "8/100")) << lines[4];
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
}

void wait_in(RankSlot& slot, std::size_t row, const char* group, std::int64_t waited_ns) {
  launch::GroupTotals& totals = slot.totals[row];
  launch::write_text(totals.group, group);
  totals.sums[static_cast<int>(launch::Op::all_reduce)].waited_ns = waited_ns;
  totals.sums[static_cast<int>(launch::Op::all_reduce)].moved_bytes = 1 << 20;
  totals.state = launch::GroupTotals::named;
}

TEST_F(TopTest, ShowsWhichAxisOfTheMeshARankWaitsFor) {
  launch::write_text(board_.slot(1).place, "dp_shard 0, tp 1");
  wait_in(board_.slot(1), 0, "world", 0);
  wait_in(board_.slot(1), 1, "tp 0", 60'000'000'000'000);
  wait_in(board_.slot(1), 2, "dp_shard 1\x1b[2J", 0);
  const auto text = top({"--once"});
  EXPECT_TRUE(contains(text.out, "dp_shard 0, tp 1; backward")) << text.out;
  EXPECT_TRUE(contains(text.out, "comm%: world 0, tp ") && contains(text.out, ", dp_shard 1?[2J 0")) << text.out;
  const auto run = top({"--json"});
  const Value rank = parse_json(run.out, "output").at("jobs").items()[0].at("ranks").items()[1];
  EXPECT_EQ(rank.at("place").as_string(), "dp_shard 0, tp 1");
  const Value& tp = rank.at("communication").items()[1];
  EXPECT_EQ(tp.at("axis").as_string(), "tp");
  EXPECT_EQ(tp.at("moved_bytes").as_int(), 1 << 20);
  EXPECT_GT(tp.at("share").as_real(), 1) << "60,000 s of a process that is young";
}

TEST_F(TopTest, Json) {
  write_entry(board_.slot(1), launch::Status::done);
  const auto run = top({"--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Value jobs = parse_json(run.out, "output").at("jobs");
  ASSERT_EQ(jobs.items().size(), 1u);
  const Value& job = jobs.items()[0];
  EXPECT_EQ(job.at("agent_pid").as_int(), getpid());
  ASSERT_EQ(job.at("ranks").items().size(), 2u);
  const Value& rank = job.at("ranks").items()[1];
  EXPECT_EQ(rank.at("step").as_int(), 8);
  EXPECT_EQ(rank.at("state").as_string(), "running");
  EXPECT_FALSE(rank.at("collective_runs").as_bool());
  EXPECT_GE(rank.at("heartbeat_age_seconds").as_real(), 0);
}

TEST_F(TopTest, MarksWhoIsInTrouble) {
  const pid_t stopped = fork();
  if (stopped == 0) {
    for (;;) pause();
  }
  ASSERT_GT(stopped, 0);
  kill(stopped, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(stopped, &status, WUNTRACED), stopped);
  board_.slot(0).pid = stopped;
  silent_ = 1;
  board_.slot(1).heartbeat_ns = monotonic_ns() - 8'000'000'000;
  auto run = top({"--once"});
  EXPECT_TRUE(contains(run.out, "stopped by a signal")) << run.out;
  EXPECT_TRUE(contains(run.out, "no heartbeat for ")) << run.out;

  kill(stopped, SIGKILL);
  ASSERT_EQ(waitpid(stopped, &status, 0), stopped);
  silent_ = -1;
  board_.slot(1).state = RankState::failed;
  launch::write_text(board_.slot(1).error, "all_reduce #42 does not fit");
  run = top({"--once"});
  EXPECT_TRUE(contains(run.out, " DEAD ")) << run.out;
  EXPECT_TRUE(contains(run.out, " FAILED ") && contains(run.out, "all_reduce #42 does not fit")) << run.out;

  board_.slot(0).state = RankState::left;
  EXPECT_TRUE(contains(top({"--once"}).out, " left ")) << "a rank that said goodbye may be gone";
}

TEST_F(TopTest, SaysThatTheAgentIsStopped) {
  const auto agent_of_json = [&] { return parse_json(top({"--json"}).out, "output").at("jobs").items()[0]; };
  EXPECT_FALSE(agent_of_json().at("agent_stopped").as_bool());
  EXPECT_FALSE(contains(top({"--once"}).out, "the agent is stopped"));
  const pid_t agent = fork();
  if (agent == 0) {
    for (;;) pause();
  }
  ASSERT_GT(agent, 0);
  kill(agent, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(agent, &status, WUNTRACED), agent);
  board_.header().agent_pid = agent;
  const std::string text = top({"--once"}).out;
  EXPECT_TRUE(contains(text, concat("the agent is stopped, and its ranks are not watched: kill -CONT ", agent)))
      << text;
  EXPECT_TRUE(agent_of_json().at("agent_stopped").as_bool());
  kill(agent, SIGKILL);
  waitpid(agent, &status, 0);
}

TEST_F(TopTest, BelievesNothing) {
  launch::write_text(board_.header().job, "\x1b[2Jevil\r\n\xff\x9b");
  RankSlot& slot = board_.slot(0);
  std::fill(std::begin(slot.phase), std::end(slot.phase), '\x07');  // no terminator
  slot.state = static_cast<RankState>(77);
  slot.step = std::numeric_limits<std::int64_t>::max();
  slot.total_steps = std::numeric_limits<std::int64_t>::min();
  slot.tokens_per_second = 1e300;
  slot.loss = -1e300;
  slot.memory_bytes = -5;
  slot.pid = std::numeric_limits<std::int32_t>::min();
  slot.next_entry = std::numeric_limits<std::uint64_t>::max();
  board_.header().slots = 1000;
  for (const Strings& how : {Strings{"--once"}, {"--json"}}) {
    const auto run = top(how);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    for (const char c : run.out) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << run.out;
  }
  const std::string text = top({"--once"}).out;
  EXPECT_TRUE(text.empty() || contains(text, "?[2Jevil") || contains(text, "No job")) << text;
}

TEST(Top, NoJobsIsASentence) {
  const auto run = tessera({"top", "--once", "--pid", concat(getpid())});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "No job of tessera")) << run.out;
}

TEST(Top, BadOptions) {
  for (const Strings& bad : {Strings{"--onc"}, {"--pid", "x"}, {"--pid", "-3"}, {"--interval", "0"}, {"word"}}) {
    const auto run = tessera(Strings{"top"} + bad);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_TRUE(contains(run.err, trim(bad[0]))) << run.err;
  }
}

}  // namespace
}  // namespace tessera::testing
