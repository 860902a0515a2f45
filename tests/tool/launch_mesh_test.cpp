// A mesh under the launcher: its axes in `tessera top`, in the summary of a run and in the message about a dead rank.

#include "program.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

namespace tessera::testing {
namespace {

/// Returns -1 if there is no such process.
std::int64_t parent_of(std::int64_t pid) {
  const std::string path = concat("/proc/", pid, "/status"), name = "\nPPid:\t";
  if (pid <= 0 || !path_exists(path)) return -1;
  const std::string status = read_file(path);
  const std::size_t begin = status.find(name) + name.size();
  return parse_int(status.substr(begin, status.find('\n', begin) - begin)).value_or(-1);
}

class LaunchMesh : public ToolTest {
 protected:
  Strings launch_training(const std::string& output, const Strings& more) const {
    return Strings{"launch", "--num_processes", "2", "--", program} +
           training(output, Strings{"--per_device_train_batch_size", "2", "--save_strategy", "no"} + more);
  }
};

TEST_F(LaunchMesh, TheEndOfARunHasATableByAxis) {
  const auto run = tessera(launch_training("out", {"--tp_size", "2", "--max_steps", "3"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string said = run.out + run.err;
  EXPECT_TRUE(contains(said, "communication") && contains(said, "tp  all_reduce")) << said;
  double waited = 0;  // at most 100 over all rows: each is a share of the same time
  for (const std::string& line : split(said, '\n'))
    if (contains(line, " s ") && line.ends_with(" %") && contains(line, "  ")) {
      const std::string words = line.substr(0, line.size() - 2);
      waited += parse_real(words.substr(words.rfind(' ') + 1)).value_or(1000);
    }
  EXPECT_LE(waited, 100) << said;
  EXPECT_FALSE(contains(said, "dp_replicate-dp_shard")) << "axes of one rank send nothing: " << said;
  EXPECT_TRUE(contains(read_file(at("out/report.html")), R"("axis":"tp","operation":"all_reduce")"));
}

TEST_F(LaunchMesh, AKilledRankIsNamedWithItsPlace) {
  std::future<launch::Captured> run = std::async(std::launch::async, [&] {
    return tessera(launch_training("out", {"--tp_size", "2", "--max_steps", "1000000", "--logging_steps", "100000"}));
  });
  std::int64_t pid = 0;
  std::string seen;
  for (const Stopwatch watch; pid == 0 && watch.seconds() < watch.limit(60);) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    seen = tessera({"top", "--json"}).out;
    const Value snapshot = parse_json(seen, "top");
    for (const Value& job : snapshot.at("jobs").items()) {
      if (parent_of(job.at("agent_pid").as_int()) != getpid()) continue;  // another job on this machine
      for (const Value& rank : job.at("ranks").items())
        if (rank.at("rank").as_int() == 1 && rank.at("step").as_int() >= 3) {
          pid = rank.at("pid").as_int();
          EXPECT_EQ(rank.at("place").as_string(), "tp 1");
          Strings axes;
          for (const Value& axis : rank.at("communication").items()) axes.push_back(axis.at("axis").as_string());
          EXPECT_EQ(axes, (Strings{"world", "tp"}));
        }
    }
  }
  ASSERT_GT(pid, 0) << seen;
  kill(static_cast<pid_t>(pid), SIGKILL);
  const launch::Captured ended = run.get();
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_TRUE(contains(ended.err, concat("rank 1 (tp 1; pid ", pid, ") was killed by SIGKILL"))) << ended.err;
  EXPECT_TRUE(contains(ended.err, "of group 'tp 0'")) << ended.err;
}

}  // namespace
}  // namespace tessera::testing
