/// \file
/// Agents of two machines, both on this host: complete agents, as `tessera launch` runs them.

#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/ports.h>

#include "agent_under_test.h"

namespace tessera::launch {
namespace {

class Hosts : public ::testing::Test {
 protected:
  LaunchOptions options(int machine) const {
    LaunchOptions result;
    result.num_machines = 2;
    result.machine_rank = machine;
    result.master_port = port_;
    result.secret = secret_;
    result.host_timeout = 3600;
    return result;
  }
  std::string path(const char* name) const { return path_join(folder_.path(), name); }

  /// A rank that writes its process id and exits as if its connection to the other rank had broken.
  Strings rank_that_misses_the_other() const {
    return shell(concat("echo $$ > ", path("pid."), "$RANK; echo ready $RANK; while [ ! -s ", path("pid."),
                        "$((1-RANK)) ]; do sleep 0.05; done; other=$(cat ", path("pid."),
                        "$((1-RANK))); while grep -qs 'State:.[RSDT]' /proc/$other/status; do sleep 0.05; done; "
                        "echo 'all_reduce: Connection closed by peer' >&2; exit 1"));
  }

 private:
  const TemporaryFolder folder_;
  const int port_ = choose_port("127.0.0.1");
  const Secret secret_ = make_secret();
};

TEST_F(Hosts, AKilledAgentIsNamedByTheOtherAndNotTheVictim) {
  for (const int killed : {1, 0}) {
    ::unlink(path("pid.0").c_str());
    ::unlink(path("pid.1").c_str());
    AgentUnderTest first(rank_that_misses_the_other(), options(0)), second(rank_that_misses_the_other(), options(1));
    ASSERT_TRUE(first.wait_for("ready 0", 1)) << first.err();
    ASSERT_TRUE(second.wait_for("ready 1", 1)) << second.err();
    AgentUnderTest& victim = killed == 0 ? first : second;
    AgentUnderTest& other = killed == 0 ? second : first;
    victim.signal(SIGKILL);
    const Captured done = other.finish(60);
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_TRUE(contains(done.err, killed == 1 ? "[agent] machine 1 (" : "lost the job's store on machine 0"))
        << done.err;
    EXPECT_FALSE(contains(done.err, "[agent] rank ")) << done.err;
  }
}

TEST_F(Hosts, AnAgentThatIsStartedAgainGoesOnWithTheJob) {
  const Strings command =
      shell(concat("echo rank $RANK in $TESSERA_GENERATION of $TESSERA_JOB; [ $TESSERA_GENERATION = "
                   "1 ] || exec sleep 600"));
  const auto with_restart = [&](int machine) {
    LaunchOptions result = options(machine);
    result.max_restarts = 1;
    return result;
  };
  AgentUnderTest first(command, with_restart(0));
  std::optional<AgentUnderTest> second(std::in_place, command, with_restart(1));
  ASSERT_TRUE(first.wait_for("in 0 of", 1)) << first.err();
  ASSERT_TRUE(second->wait_for("in 0 of", 1)) << second->err();
  second->signal(SIGKILL);
  second->finish();
  second.emplace(command, with_restart(1));
  const Captured again = second->finish(60), done = first.finish(60);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(contains(done.err, "to return")) << done.err;
  EXPECT_TRUE(contains(done.err, "restarting all ranks (restart 1 of 1)")) << done.err;
  const std::string job = done.out.substr(done.out.find("in 1 of "));
  EXPECT_TRUE(contains(again.out, "rank 1 " + job.substr(0, job.find('\n') + 1))) << again.out << done.out;
}

TEST_F(Hosts, AnAgentOfMachineZeroThatStoodStillTooLongGoesOnWithTheOther) {
  const Strings command =
      shell("echo rank $RANK in $TESSERA_GENERATION; [ $TESSERA_GENERATION = 1 ] || exec sleep 600");
  const auto with_restart = [&](int machine) {
    LaunchOptions result = options(machine);
    result.max_restarts = 1;
    result.host_timeout = testing::patience(2);
    return result;
  };
  AgentUnderTest first(command, with_restart(0)), second(command, with_restart(1));
  ASSERT_TRUE(first.wait_for("in 0", 1)) << first.err();
  ASSERT_TRUE(second.wait_for("in 0", 1)) << second.err();
  first.signal(SIGSTOP);
  ASSERT_TRUE(second.wait_for_error("trying for up to")) << second.err();
  first.signal(SIGCONT);
  const Captured away = second.finish(60), done = first.finish(60);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(away.exit_code, 0) << away.err;
  EXPECT_TRUE(contains(done.err, "has given up on this machine, whose agent was suspended for")) << done.err;
  const auto told = away.err.find("lost the job's store");
  EXPECT_EQ(away.err.find("lost the job's store", told + 1), std::string::npos) << away.err;
}

}  // namespace
}  // namespace tessera::launch
