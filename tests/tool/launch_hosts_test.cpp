// `tessera launch --hostfile`: agents that die, or lose their ssh connection, while the job runs. ssh is a script that
// runs the agent on this host and, once all ranks have started, injects the fault it is named for.

#include "program.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tessera::testing {
namespace {

constexpr const char* fake_ssh = R"(#!/bin/bash
host=${@: -2:1} line=${@: -1}
echo start >> starts
n=$(wc -l < starts)
if [ $FAULT = unreachable ] && [ $n = 2 ]; then echo "ssh: no route to host" >&2; exit 255; fi
if [ $FAULT = unreachable ] && [ $n = 3 ]; then kill -INT $PPID; exit 255; fi
exec 3<&0
if [ $FAULT = half_open ] && [ $n = 1 ]; then  # the agent does not hear that ssh has ended
  exec 3< <(read secret <&3; echo $secret; echo $BASHPID > holder; exec sleep 600 2> /dev/null)
fi
setsid bash -c "$line" <&3 &
agent=$!
exec 3<&-
if [ $n = 1 ]; then
  until [ -e in.0.0 ] && [ -e in.1.0 ]; do sleep 0.05; done
  case $FAULT in
    agent) kill -9 $agent ;;
    *) kill -9 $$ ;;
  esac
fi
wait $agent 2> /dev/null
status=$?
[ $status -le 128 ] || exit 255
exit $status
)";

class LaunchHosts : public ToolTest {
 protected:
  LaunchHosts() {
    write_file_atomically("ssh", fake_ssh);
    ::chmod("ssh", 0700);
    write_file_atomically("hosts", "localhost slots=1\n127.0.0.2 slots=1\n");
  }
  ~LaunchHosts() override {
    if (::access("holder", F_OK) == 0) ::kill(std::stoi(read_file("holder")), SIGKILL);
  }

  /// Ranks that sleep until they are restarted.
  static launch::Captured launch(const std::string& fault, int max_restarts) {
    return tessera({"launch", "--hostfile", "hosts", "--max_restarts", concat(max_restarts), "sh", "-c",
                    "echo rank $RANK in $TESSERA_GENERATION; : > in.$RANK.$TESSERA_GENERATION; "
                    "[ $TESSERA_GENERATION = 1 ] || exec sleep 600"},
                   {{"TESSERA_SSH", "./ssh"}, {"FAULT", fault}});
  }
  static std::size_t starts() { return split(read_file("starts"), '\n').size() - 1; }
  static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }
};

TEST_F(LaunchHosts, AnAgentThatIsGoneIsStartedAgain) {
  for (const char* fault : {"ssh", "agent", "half_open"}) {
    for (const char* file : {"starts", "in.0.0", "in.1.0", "in.0.1", "in.1.1"}) ::unlink(file);
    const launch::Captured done = launch(fault, 2);
    EXPECT_EQ(done.exit_code, 0) << fault << "\n" << done.err;
    EXPECT_EQ(starts(), 2u) << fault;
    const std::string how = std::string(fault) == "agent" ? "ended with exit code 255" : "was killed by SIGKILL";
    EXPECT_TRUE(contains(done.err, concat("host 127.0.0.2 (machine 1): its ssh ", how, "; starting its agent again")))
        << done.err;
    EXPECT_TRUE(contains(done.out, "[127.0.0.2 rank 1] rank 1 in 1")) << fault << "\n" << done.out;
    EXPECT_TRUE(contains(done.out, "[localhost rank 0] rank 0 in 1")) << fault << "\n" << done.out;
    // A report that every agent makes is shown once.
    EXPECT_EQ(count(done.err, "machine 1 (127.0.0.2) has left"), 1) << done.err;
    EXPECT_EQ(count(done.err, "restarting all ranks"), 1) << done.err;
    EXPECT_FALSE(contains(done.err, "is in the job")) << done.err;
  }
}

TEST_F(LaunchHosts, AHostThatCannotBeReachedAgainIsTriedUntilTheJobEnds) {
  const launch::Captured done = launch("unreachable", 2);
  EXPECT_EQ(done.exit_code, 130) << done.err;
  EXPECT_EQ(starts(), 3u);
  EXPECT_TRUE(contains(done.err, "host 127.0.0.2 (machine 1): its ssh was killed by SIGKILL")) << done.err;
  EXPECT_TRUE(contains(done.err, "host 127.0.0.2 (machine 1): its ssh ended with exit code 255")) << done.err;
}

TEST_F(LaunchHosts, WithoutRestartsAHostThatIsGoneIsNamed) {
  const launch::Captured done = launch("agent", 0);
  EXPECT_EQ(done.exit_code, 1) << done.err;
  EXPECT_EQ(starts(), 1u);
  EXPECT_TRUE(contains(done.err,
                       "host 127.0.0.2 (machine 1): its ssh ended with exit code 255, and the job ends. Use "
                       "--max_restarts N to have its agent started again"))
      << done.err;
}

}  // namespace
}  // namespace tessera::testing
