// horovodrun's options given to tessera launch.
#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/cli/command_line.h>
#include <tessera/launch/cli/horovod_flags.h>
#include <tessera/launch/cli/launch_flags.h>

#include <tests/error_of.h>

#include <algorithm>
#include <set>

namespace tessera::launch {
namespace {

using Strings = std::vector<std::string>;

class HorovodFlagsTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }
  std::string written(const std::string& name, const std::string& text) const {
    write_file_atomically(at(name), text);
    return at(name);
  }
  static LaunchCommand parse(Strings words) {
    words.insert(words.end(), {"python3", "train.py"});
    return parse_launch_command(words);
  }
  static std::string error(const Strings& words) {
    return tessera::testing::error_of([&] { parse(words); });
  }
  static std::string notes(const Strings& words) { return join(parse(words).notes, "\n"); }
  static bool exports(const LaunchCommand& command, const std::string& variable) {
    return std::find(command.exports.begin(), command.exports.end(), variable) != command.exports.end();
  }
  TemporaryFolder folder_;
};

std::string slots_of(const LaunchCommand& command) {
  std::string text;
  for (const HostSlots& host : command.hosts) text += concat(host.name, ":", host.slots.size(), " ");
  return text;
}

TEST_F(HorovodFlagsTest, RanksAndHosts) {
  EXPECT_EQ(parse({"-np", "4"}).options.num_processes, 4);
  EXPECT_EQ(slots_of(parse({"-np", "4", "-H", "localhost:4"})), "localhost:4 ");
  EXPECT_EQ(slots_of(parse({"-np", "3", "-H", "one:2,two:2,three:2"})), "one:2 two:1 ");
  EXPECT_EQ(slots_of(parse({"--num-proc=6", "--hosts", "one:2,two:4"})), "one:2 two:4 ");
  const std::string file = written("hosts", "one slots=2\ntwo slots=2\n");
  EXPECT_EQ(slots_of(parse({"-np", "3", "-hostfile", file})), "one:2 two:1 ");
  EXPECT_EQ(slots_of(parse({"-np", "4", "-H", file})), "one:2 two:2 ");  // DeepSpeed's -H is a file
  EXPECT_EQ(error({"-np", "5", "-H", "one:2,two:2"}), "-np 5, but the hosts have 4 slots");
  EXPECT_EQ(error({"-np", "two"}), "-np two: expected an integer from 1 to 4096");
  EXPECT_EQ(error({"-H", "one:2,one:2"}), "-H one:2,one:2: host one is listed twice");
  EXPECT_EQ(error({"--hosts", "one"}),
            "-H one: 'one' is not HOST:SLOTS, such as localhost:4 or one:2,two:2; a file of hosts needs to exist");
  EXPECT_EQ(error({"-H", "one:2", "--hostfile", file}),
            "-H HOST:SLOTS and --hostfile or --host_list both name the hosts: remove one of them");
}

TEST_F(HorovodFlagsTest, WhatTheRanksMustKnowIsInTheirVariables) {
  const LaunchCommand command =
      parse({"-np", "2", "--network-interfaces", "eth0,eth1", "--timeline-filename", "/tmp/t.json", "--start-timeout",
             "60", "--gloo-timeout-seconds=5", "--fusion-threshold-mb", "32", "--output-filename", "logs",
             "--no-stall-check", "--reset-limit", "3", "--gloo", "--verbose", "--disable-cache"});
  for (const char* variable :
       {"HOROVOD_GLOO_IFACE=eth0,eth1", "GLOO_SOCKET_IFNAME=eth0,eth1", "NCCL_SOCKET_IFNAME=eth0,eth1",
        "HOROVOD_TIMELINE=/tmp/t.json", "HOROVOD_START_TIMEOUT=60", "HOROVOD_GLOO_TIMEOUT_SECONDS=5",
        "HOROVOD_FUSION_THRESHOLD=33554432"}) {
    EXPECT_TRUE(exports(command, variable)) << variable;
  }
  EXPECT_EQ(command.options.log_dir, "logs");
  EXPECT_EQ(command.options.hang_timeout, -1);
  EXPECT_EQ(command.options.max_restarts, 3);
  EXPECT_EQ(parse({"-np", "2", "--stall-check-shutdown-time-seconds", "90"}).options.hang_timeout, 90);
  EXPECT_EQ(join(command.notes), "");
  EXPECT_EQ(error({"--start-timeout", "soon"}), "--start-timeout soon: expected a number of seconds from 0 to 1000000");
  EXPECT_EQ(error({"--network-interface", "eth 0"}),
            "--network-interface eth 0: expected names of network interfaces such as eth0,eth1");
}

TEST_F(HorovodFlagsTest, TheNumberOfRanksDoesNotChange) {
  const std::string note =
      "the job keeps 2 processes: --min_np and --max_np do not change that; after a failure --max_restarts starts all "
      "of "
      "them again";
  EXPECT_EQ(notes({"-np", "2", "--min-np", "1", "--max-np", "4"}), note);
  EXPECT_EQ(parse({"--min-np", "2"}).options.num_processes, 2);
  EXPECT_EQ(parse({"--max-np", "2"}).options.num_processes, 2);
  EXPECT_EQ(slots_of(parse({"--max-np", "2", "-H", "localhost:4"})), "localhost:2 ");
  EXPECT_EQ(slots_of(parse({"--max-np", "8", "-H", "localhost:4"})), "localhost:4 ");
  EXPECT_EQ(error({"-np", "2", "--min-np", "3"}), "-np 2 is less than --min_np 3");
  EXPECT_EQ(error({"-np", "5", "--max-np", "3"}), "--max_np 3 is less than -np 5");
  const std::string script = written("hosts.sh", "#!/bin/sh\necho one:2\necho two:2\n");
  const LaunchCommand command = parse({"-np", "3", "--host-discovery-script", "sh " + script});
  EXPECT_EQ(slots_of(command), "one:2 two:1 ");
  EXPECT_EQ(join(command.notes), "--host_discovery_script is run once: the job keeps the hosts one:2,two:2");
  EXPECT_EQ(slots_of(parse({"-np", "4", "--slots-per-host", "4", "--host-discovery-script", "echo one"})), "one:4 ");
  EXPECT_NE(error({"-np", "4", "--host-discovery-script", "echo one"}).find("add --slots_per_host N"),
            std::string::npos);
  EXPECT_NE(error({"-np", "4", "--host-discovery-script", "exit 3"}).find("it failed"), std::string::npos);
  EXPECT_NE(error({"-np", "4", "--host-discovery-script", "true"}).find("it printed no host"), std::string::npos);
}

TEST_F(HorovodFlagsTest, HorovodsFileIsRead) {
  const std::string file =
      written("horovod.yaml",
              "controller: gloo\nparams:\n  fusion_threshold_mb: 8\n  cycle_time_ms: 2.5\n"
              "timeline:\n  filename: t.json\n  mark_cycles: false\nstall_check:\n  enabled: false\n"
              "library_options:\n  gloo_timeout_seconds: 7\n");
  const LaunchCommand command = parse({"-np", "2", "--config-file", file, "--gloo-timeout-seconds", "9"});
  EXPECT_TRUE(exports(command, "HOROVOD_FUSION_THRESHOLD=8388608"));
  EXPECT_TRUE(exports(command, "HOROVOD_TIMELINE=t.json"));
  EXPECT_TRUE(exports(command, "HOROVOD_GLOO_TIMEOUT_SECONDS=9"));  // the option wins
  EXPECT_FALSE(exports(command, "HOROVOD_GLOO_TIMEOUT_SECONDS=7"));
  EXPECT_EQ(command.options.hang_timeout, -1);
  EXPECT_EQ(
      join(command.notes, "\n"),
      concat("reading horovodrun's settings from ", file, "\n", file,
             ":4:18 (--cycle_time_ms) has no effect: operations that wait are combined at once, without a ", "cycle"));
  const std::string wrong = written("wrong.yaml", "params:\n  fusion_treshold_mb: 8\n");
  EXPECT_NE(
      error({"--config-file", wrong}).find("unknown key params.fusion_treshold_mb; did you mean fusion_threshold_mb?"),
      std::string::npos)
      << error({"--config-file", wrong});
  const std::string bogus = written("bogus.yaml", "controller: hostfile\n");
  EXPECT_NE(error({"--config-file", bogus}).find("controller is 'hostfile'; it must be one of gloo, mpi, jsrun"),
            std::string::npos);
  const std::string mpi = written("mpi.yaml", "controller: mpi\n");
  EXPECT_NE(error({"--config-file", mpi}).find("mpirun -np N"), std::string::npos) << error({"--config-file", mpi});
}

TEST_F(HorovodFlagsTest, EveryOptionOfHorovodrunIsKnown) {
  // All options of horovodrun 0.28.
  const Strings known = {
      "-v --version -np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces "
      "--network-interface --output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file "
      "--fusion-threshold-mb --cycle-time-ms --cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce "
      "--hierarchical-allgather --no-hierarchical-allgather --torus-allreduce --no-torus-allreduce --autotune "
      "--no-autotune --autotune-log-file --autotune-warmup-samples --autotune-steps-per-sample "
      "--autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --min-np --min-num-proc --max-np "
      "--max-num-proc --slots-per-host --elastic-timeout --reset-limit --blacklist-cooldown-range --timeline-filename "
      "--timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check --stall-check "
      "--stall-check-warning-time-seconds --stall-check-shutdown-time-seconds --mpi-threads-disable "
      "--no-mpi-threads-disable --mpi-args --tcp --binding-args --num-nccl-streams --thread-affinity "
      "--gloo-timeout-seconds --log-level --log-with-timestamp --log-without-timestamp -prefix-timestamp "
      "--prefix-output-with-timestamp --log-hide-timestamp --no-log-hide-timestamp -H --hosts -hostfile --hostfile "
      "--host-discovery-script --gloo --mpi --jsrun"};
  std::multiset<std::string> names;
  for (const LaunchFlag& flag : launch_flags()) names.insert(flag.names.begin(), flag.names.end());
  for (const std::string& option : split(known[0], ' ')) {
    std::string name = option;
    if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
    EXPECT_EQ(names.count(name), 1u) << option;
  }
  for (const std::string& refusal : Strings{"--mpi", "--jsrun", "--mpi-args=-x", "--binding-args=core", "-p=22",
                                            "--ssh-identity-file=key", "--blacklist-cooldown-range=1"}) {
    EXPECT_TRUE(error({refusal}).starts_with("tessera launch: " + refusal.substr(0, refusal.find('='))))
        << error({refusal});
  }
  EXPECT_EQ(notes({"-np", "1", "--cycle-time-ms", "1"}),
            "--cycle-time-ms has no effect: operations that wait are combined at once, without a cycle");
  const LaunchCommand build = parse_launch_command({"--check-build"});
  EXPECT_TRUE(build.check_build);
  EXPECT_NE(horovod_build().find("[X] PyTorch"), std::string::npos);
}

}  // namespace
}  // namespace tessera::launch
