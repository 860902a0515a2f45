// --checkpoint_in_memory: a process that dies costs at most K steps, without a checkpoint on disk.

#include "program.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include <tessera/base/error.h>

namespace tessera::testing {
namespace {

/// The pid of a rank of the run that writes to `output`.
std::optional<pid_t> rank_process(const std::string& output, const std::string& rank) {
  for (const std::string& name : list_folder("/proc")) {
    const auto pid = parse_int(name);
    if (!pid) continue;
    try {
      const std::string command = read_file(concat("/proc/", name, "/cmdline")),
                        variables = read_file(concat("/proc/", name, "/environ"));
      if (contains(command, output + '\0') && contains('\0' + variables, concat('\0', "RANK=", rank, '\0')))
        return static_cast<pid_t>(*pid);
    } catch (const InputError&) {  // it has ended in the meantime
    }
  }
  return std::nullopt;
}

class MemoryCheckpointTest : public ToolTest {
 protected:
  /// Waits until the run has logged `step`, then kills one of its ranks. Returns whether it did.
  bool kill_rank(const std::string& output, std::int64_t step, const std::string& rank,
                 const std::atomic<bool>& over) const {
    while (!over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (!path_exists(path_join(at(output), "metrics.jsonl")) ||
          !contains(read_file(path_join(at(output), "metrics.jsonl")), concat("\"step\":", step, ",")))
        continue;
      const auto pid = rank_process(at(output), rank);
      return pid && ::kill(*pid, SIGKILL) == 0;
    }
    return false;
  }
};

TEST_F(MemoryCheckpointTest, ADeadRankCostsAtMostTheStepsSinceTheLastCopy) {
  const Strings common =
      Strings{"--num_processes", "2", "--fsdp", "full_shard", "--save_strategy", "no"} + batch(2, 1, 160);
  const auto whole = tessera(training("whole", common));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  for (const char* rank : {"0", "1"}) {
    const std::string output = concat("killed", rank);
    std::atomic<bool> over = false;
    bool killed = false;
    std::thread killer([&] { killed = kill_rank(output, 30, rank, over); });
    const auto run = tessera(training(output, common + Strings{"--max_restarts", "1", "--checkpoint_in_memory", "5"}));
    over = true;
    killer.join();
    ASSERT_TRUE(killed) << "the run ended before it could be disturbed: " << run.err;
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::size_t told = run.err.find("resuming from /dev/shm/tessera-memory-");
    ASSERT_NE(told, std::string::npos) << run.err;
    const std::string line = run.err.substr(told, run.err.find('\n', told) - told);
    const std::size_t mark = line.find("/checkpoint-");
    ASSERT_NE(mark, std::string::npos) << line;
    const auto step = parse_int(line.substr(mark + 12));
    ASSERT_TRUE(step.has_value()) << line;
    EXPECT_GE(*step, 20) << "it was killed after step 30, and copies are made every 5 steps (one may be on its way)";
    EXPECT_EQ(curve(output), curve("whole")) << "as if nothing had happened";
    EXPECT_EQ(read_file(at(output + "/model.safetensors")), read_file(at("whole/model.safetensors")));
    EXPECT_FALSE(path_exists(line.substr(line.find("/dev/shm"), line.find("/checkpoint-") - line.find("/dev/shm"))))
        << "it ends with the agent";
    for (const std::string& name : list_folder(at(output))) EXPECT_FALSE(name.starts_with("checkpoint-")) << name;
  }
}

TEST_F(MemoryCheckpointTest, WithoutAnAgentItSaysThatItHasNoEffect) {
  const auto run = tessera(training("out", Strings{"--checkpoint_in_memory", "1"} + batch(2, 1, 2)));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "--checkpoint_in_memory has no effect: ")) << run.err;
}

}  // namespace
}  // namespace tessera::testing
