#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/affinity.h>
#include <tessera/launch/cli/command_line.h>

#include <tests/error_of.h>

#include <cstdlib>

namespace tessera::launch {
namespace {

using Strings = std::vector<std::string>;

std::string message_of(const Strings& arguments) {
  return tessera::testing::error_of([&] { parse_launch_command(arguments); });
}
bool says(const Strings& arguments, const std::string& part) {
  const std::string message = message_of(arguments);
  EXPECT_NE(message.find(part), std::string::npos) << message;
  return message.find(part) != std::string::npos;
}

TEST(LaunchCommandLine, NamesOfAccelerateAndTorchrun) {
  for (const Strings& arguments :
       {Strings{"--num_processes", "4", "--main_process_port=29501", "--main_process_ip", "127.0.0.2", "prog",
                "--num_processes", "9"},
        Strings{"--nproc-per-node=4", "--master-port", "29501", "--master_addr=127.0.0.2", "prog", "--num_processes",
                "9"},
        Strings{"-n", "4", "--master_port=29501", "--main-process-ip=127.0.0.2", "--no-python", "--standalone",
                "--nnodes=1", "--node_rank", "0", "--", "prog", "--num_processes", "9"}}) {
    const LaunchCommand result = parse_launch_command(arguments);
    EXPECT_EQ(result.options.num_processes, 4);
    EXPECT_EQ(result.options.master_port, 29501);
    EXPECT_EQ(result.options.master_addr, "127.0.0.2");
    EXPECT_TRUE(result.options.prefix_output);
    EXPECT_EQ(result.command, (Strings{"prog", "--num_processes", "9"}));
  }
}

TEST(LaunchCommandLine, DefaultsAndSwitches) {
  const LaunchCommand plain = parse_launch_command({"prog"});
  EXPECT_EQ(plain.options.num_processes, 1);
  EXPECT_EQ(plain.options.master_port, 0);
  const LaunchCommand other = parse_launch_command({"--no-prefix", "--num_cpu_threads_per_process=3", "prog"});
  EXPECT_FALSE(other.options.prefix_output);
  EXPECT_EQ(other.options.threads_per_process, 3);
}

TEST(LaunchCommandLine, PythonScriptsRunWithPython) {
  EXPECT_EQ(parse_launch_command({"train.py", "--lr", "1"}).command,
            (Strings{"python3", "-u", "train.py", "--lr", "1"}));
  EXPECT_EQ(parse_launch_command({"prog", "train.py"}).command, (Strings{"prog", "train.py"}));
}

TEST(LaunchCommandLine, HelpFitsATerminal) {
  EXPECT_TRUE(parse_launch_command({"--help"}).help);
  EXPECT_TRUE(parse_launch_command({"-n", "2", "-h"}).help);
  EXPECT_FALSE(parse_launch_command({"prog", "--help"}).help);
  const std::string help = launch_help();
  for (const char* name : {"--num_processes", "--main_process_port", "--hostfile", "--no_prefix", "--emit", "--tee"}) {
    EXPECT_NE(help.find(name), std::string::npos) << name;
  }
  for (const std::string& line : split(help, '\n')) EXPECT_LE(line.size(), 79u) << line;
}

// torchrun -m, deepspeed --module, accelerate launch -m
TEST(LaunchCommandLine, AModuleRunsByPython) {
  for (const char* flag : {"-m", "--module"}) {
    const LaunchCommand command = parse_launch_command({"--nproc_per_node=2", flag, "pkg.train", "--lr", "1"});
    EXPECT_EQ(command.command, (std::vector<std::string>{"python3", "-u", "-m", "pkg.train", "--lr", "1"})) << flag;
    EXPECT_TRUE(says({flag}, "no program was given"));
  }
}

TEST(LaunchCommandLine, WithoutANumberOneProcessStartsAndANoteSaysSo) {
  const auto notes = [](const std::vector<std::string>& arguments) { return parse_launch_command(arguments).notes; };
  EXPECT_EQ(
      notes({"--config_file", "none", "prog"}),
      (std::vector<std::string>{"one process starts: --num_processes N starts more, gpu one per GPU (other launchers "
                                "take all GPUs unasked)"}));
  for (const char* number : {"--num_processes=1", "--nproc_per_node=1", "--num_gpus=1", "--include=localhost:0"})
    EXPECT_EQ(notes({"--config_file", "none", number, "prog"}), std::vector<std::string>{}) << number;
}

TEST(LaunchCommandLine, MistakesAreNamed) {
  EXPECT_TRUE(says({"--num_proceses", "4", "prog"}, "unknown option --num_proceses; did you mean --num_processes?"));
  EXPECT_TRUE(says({"--zzzzzzzz", "prog"}, "unknown option --zzzzzzzz"));
  EXPECT_TRUE(says({"--num_processes", "four", "prog"},
                   "--num_processes four: expected an integer from 1 to 4096, or gpu, cpu or auto"));
  EXPECT_TRUE(says({"--num_processes", "0", "prog"}, "expected an integer"));
  EXPECT_TRUE(says({"--master_port=70000", "prog"}, "from 0 to 65535"));
  EXPECT_TRUE(says({"--num_processes"}, "needs a value"));
  EXPECT_TRUE(says({"--no_prefix=1", "prog"}, "takes no value"));
  EXPECT_TRUE(says({"--num_processes", "2"}, "no program was given"));
  EXPECT_TRUE(says({}, "no program was given"));
  EXPECT_TRUE(says({"--fsdp=full shard", "--fsdp_config=path/to/fsdp_config/ my-trainer-script.py"},
                   "Is the program part of '--fsdp_config=path/to/fsdp_config/ my-trainer-script.py'"));
  EXPECT_TRUE(says({"--"}, "no program was given"));
  EXPECT_TRUE(says({"--log_dir=", "prog"}, "--log_dir needs a non-empty value"));
  EXPECT_TRUE(says({"--monitor_interval", "x", "prog"}, "expected a number"));
  EXPECT_TRUE(says({"--hang_timeout", "nan", "prog"}, "expected a number"));
}

TEST(LaunchCommandLine, KnownElsewhereButNotHere) {
  EXPECT_TRUE(says({"--autotuning", "run", "prog"}, "tessera train --strategy auto"));
  EXPECT_TRUE(says({"--elastic_training", "prog"}, "on another number of processes"));
  EXPECT_TRUE(says({"--rdzv_backend=etcd", "prog"}, "c10d or static"));
  EXPECT_TRUE(says({"--rdzv_conf=timeout", "prog"}, "KEY=VALUE"));
  EXPECT_TRUE(says({"--nnodes=1:4", "prog"}, "the number of machines of a job is fixed"));
  const LaunchCommand accepted =
      parse_launch_command({"--standalone", "--nnodes=1:1", "--rdzv_backend=c10d", "--rdzv_id", "job7",
                            "--rdzv-conf=timeout=3,x=y", "--role", "worker", "--start_method=spawn", "--multi_gpu",
                            "--max_restarts=2", "--monitor-interval", "0.5", "prog"});
  EXPECT_EQ(accepted.options.job, "job7");
  EXPECT_EQ(accepted.options.max_restarts, 2);
  EXPECT_EQ(accepted.options.monitor_interval, 0.5);
  EXPECT_EQ(parse_launch_command({"--host-timeout=120", "prog"}).options.host_timeout, 120);
}

TEST(LaunchCommandLine, Processes) {
  const int cores = static_cast<int>(usable_cores().size());
  EXPECT_EQ(parse_launch_command({"--nproc_per_node=cpu", "prog"}).options.num_processes, cores);
  EXPECT_GE(parse_launch_command({"--nproc_per_node=auto", "prog"}).options.num_processes, 1);
  const Strings several = {"--num_machines=2", "--machine_rank=1", "--main_process_ip=10.0.0.1"};
  const auto with = [&](Strings more) {
    more.insert(more.begin(), several.begin(), several.end());
    more.push_back("prog");
    return more;
  };
  EXPECT_EQ(parse_launch_command(with({"--num_processes=6"})).options.num_processes, 3);  // accelerate: a total
  EXPECT_EQ(parse_launch_command(with({"--nproc_per_node=6"})).options.num_processes, 6);
  EXPECT_EQ(parse_launch_command(with({"--nproc_per_node=3", "-n", "6"})).options.num_processes, 3);
  EXPECT_TRUE(says(with({"--nproc_per_node=4", "-n", "6"}), "makes 8"));
  EXPECT_TRUE(says(with({"-n", "5"}), "cannot be shared evenly by 2"));
  const LaunchOptions options = parse_launch_command(with({})).options;
  EXPECT_EQ(options.num_machines, 2);
  EXPECT_EQ(options.machine_rank, 1);
  EXPECT_EQ(options.master_addr, "10.0.0.1");
  EXPECT_EQ(options.master_port, 29500);
}

TEST(LaunchCommandLine, Machines) {
  for (const char* name : {"SLURM_NODEID", "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    ::unsetenv(name);
  }
  EXPECT_TRUE(says({"--num_machines=2", "--main_process_ip=a", "prog"}, "--machine_rank"));
  ::setenv("JOB_COMPLETION_INDEX", "1", 1);
  EXPECT_EQ(parse_launch_command({"--nnodes=2", "--machine_rank=auto", "--master_addr=a", "prog"}).options.machine_rank,
            1);
  EXPECT_TRUE(says({"--nnodes=1", "--node_rank=1", "prog"}, "there is only one machine"));
  EXPECT_EQ(parse_launch_command({"--nnodes=2", "--master_addr=a", "--node_rank=0", "prog"}).options.machine_rank, 0);
  ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);  // a launcher with a different number of processes, not one per machine
  ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  ::unsetenv("JOB_COMPLETION_INDEX");
  EXPECT_TRUE(says({"--nnodes=2", "--master_addr=a", "prog"}, "--machine_rank"));
  EXPECT_EQ(parse_launch_command({"--nnodes=4", "--master_addr=a", "prog"}).options.machine_rank, 1);
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_TRUE(says({"--nnodes=2", "--node_rank=2", "--master_addr=a", "prog"}, "machine rank 2 of 2"));
  EXPECT_TRUE(says({"--nnodes=2", "--node_rank=1", "prog"}, "meet at machine 0"));
  EXPECT_TRUE(says({"--nnodes=2", "--node_rank=1", "--standalone", "--master_addr=a", "prog"}, "--standalone"));
  const LaunchOptions endpoint =
      parse_launch_command({"--nnodes=2", "--node_rank=1", "--rdzv_endpoint=host:123", "prog"}).options;
  EXPECT_EQ(endpoint.master_addr, "host");
  EXPECT_EQ(endpoint.master_port, 123);
  for (const Strings& words :
       {Strings{"--rdzv_endpoint=[fd00::1]:123"}, Strings{"--main_process_ip=[fd00::1]", "--main_process_port=123"},
        Strings{"--master_addr=fd00::1", "--rdzv_endpoint=[fd00::1]:123"}}) {
    Strings all = {"--nnodes=2", "--node_rank=1"};
    all.insert(all.end(), words.begin(), words.end());
    all.push_back("prog");
    const LaunchOptions ipv6 = parse_launch_command(all).options;
    EXPECT_EQ(ipv6.master_addr, "fd00::1") << words[0];
    EXPECT_EQ(ipv6.master_port, 123) << words[0];
  }
  EXPECT_TRUE(says({"--rdzv_endpoint=a:1", "--master_addr=b", "prog"}, "different addresses"));
  EXPECT_TRUE(says({"--rdzv_endpoint=a:x", "prog"}, "HOST:PORT"));
}

TEST(LaunchCommandLine, Kubeflow) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"PET_NNODES", "3"},
                                                                      {"PET_NPROC_PER_NODE", "2"},
                                                                      {"PET_NODE_RANK", "1"},
                                                                      {"PET_MASTER_ADDR", "job-node-0-0"},
                                                                      {"PET_MASTER_PORT", "29501"}}) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  const LaunchOptions pod = parse_launch_command({"prog"}).options;
  const LaunchOptions given = parse_launch_command({"--nproc_per_node=5", "--rdzv_endpoint=b:7", "prog"}).options;
  const LaunchOptions alone = parse_launch_command({"--nnodes=1", "prog"}).options;
  for (const char* name : {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}) {
    ::unsetenv(name);
  }
  EXPECT_EQ(pod.num_machines, 3);
  EXPECT_EQ(pod.num_processes, 2);
  EXPECT_EQ(pod.machine_rank, 1);
  EXPECT_EQ(pod.master_addr, "job-node-0-0");
  EXPECT_EQ(pod.master_port, 29501);
  EXPECT_EQ(given.num_processes, 5);
  EXPECT_EQ(given.master_addr, "b");
  EXPECT_EQ(given.master_port, 7);
  EXPECT_EQ(alone.num_machines, 1);
}

TEST(LaunchCommandLine, Hosts) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/hosts";
  write_file_atomically(file, "a slots=2\nb slots=4\n");
  const auto with = [&](Strings words) {
    words.insert(words.begin(), {"--hostfile", file});
    words.push_back("prog");
    return words;
  };
  const LaunchCommand all = parse_launch_command(with({}));
  EXPECT_TRUE(all.over_ssh);
  ASSERT_EQ(all.hosts.size(), 2u);
  EXPECT_EQ(all.options.num_machines, 2);
  EXPECT_EQ(all.options.master_addr, "a");
  const LaunchCommand one = parse_launch_command(with({"--include", "b:1,3"}));
  ASSERT_EQ(one.hosts.size(), 1u);
  EXPECT_EQ(one.hosts[0].slots, (std::vector<int>{1, 3}));
  EXPECT_EQ(parse_launch_command(with({"--num_nodes=1", "--num_gpus=1"})).hosts,
            (std::vector<HostSlots>{{"a", {0}, 2}}));
  // Started by hand on each host.
  const LaunchCommand second = parse_launch_command(with({"--machine_rank=1"}));
  EXPECT_FALSE(second.over_ssh);
  EXPECT_EQ(second.options.num_processes, 4);
  EXPECT_EQ(second.options.master_addr, "a");
  EXPECT_EQ(second.options.host_label, "b");
  EXPECT_TRUE(says(with({"--nproc_per_node=3"}), "host a has 2 slots"));
  EXPECT_TRUE(says(with({"--num_machines=3"}), "only 2 hosts"));
  EXPECT_TRUE(says(with({"-n=5"}), "6 slots"));
  EXPECT_TRUE(says(with({"--include=a", "--exclude=b"}), "exclude each other"));
  EXPECT_TRUE(says(with({"--include=a", "--num_machines=1"}), "--include and --exclude already select"));
  EXPECT_TRUE(says({"--include=a", "prog"}, "--hostfile"));
  const std::string bad = folder.path() + "/bad";
  write_file_atomically(bad, "a  # slow\nz\n");
  const LaunchCommand rest = parse_launch_command(with({"--bad_hosts", bad}));
  EXPECT_EQ(rest.hosts, (std::vector<HostSlots>{{"b", {0, 1, 2, 3}, 4}}));
  ASSERT_EQ(rest.notes.size(), 1u);
  EXPECT_NE(rest.notes[0].find("a is excluded"), std::string::npos);
  write_file_atomically(bad, "a\nb\n");
  EXPECT_TRUE(says(with({"--bad_hosts", bad}), "no host is left"));
  EXPECT_TRUE(says(with({"--bad_hosts", bad + "x"}), "no such file"));
  EXPECT_TRUE(says({"--bad_hosts", bad, "prog"}, "--hostfile or --host_list"));
  EXPECT_TRUE(says(with({"--host_list=a"}), "one of them"));
  const LaunchCommand list = parse_launch_command({"--host_list=n[1-2]", "--nproc_per_node=3", "prog"});
  EXPECT_EQ(list.hosts, (std::vector<HostSlots>{{"n1", {0, 1, 2}, 3}, {"n2", {0, 1, 2}, 3}}));
  EXPECT_TRUE(says({"--export", "1A=2", "prog"}, "NAME=VALUE"));
}

TEST(LaunchCommandLine, Output) {
  EXPECT_EQ(parse_launch_command({"--log_dir=d", "prog"}).options.tee, 3);
  EXPECT_EQ(parse_launch_command({"--log_dir=d", "--redirects=3", "prog"}).options.tee, 0);
  EXPECT_EQ(parse_launch_command({"--log_dir=d", "-r", "1", "prog"}).options.tee, 2);
  EXPECT_EQ(parse_launch_command({"--log_dir=d", "-r=3", "-t=1", "prog"}).options.tee, 1);
  const LaunchOptions ranks = parse_launch_command({"--log_dir=d", "--redirects=0:3,2:1", "--tee=1:3", "prog"}).options;
  EXPECT_EQ(ranks.tee, 3);
  EXPECT_EQ(ranks.tee_of_rank, (std::map<int, int>{{0, 0}, {1, 3}, {2, 2}}));
  EXPECT_TRUE(says({"--redirects=3", "prog"}, "--log_dir"));
  EXPECT_TRUE(says({"--log_dir=d", "--redirects=4", "prog"}, "0 (none)"));
  EXPECT_TRUE(says({"--log_dir=d", "--redirects=0:1,0:2", "prog"}, "rank 0 is listed twice"));
  EXPECT_EQ(parse_launch_command({"--tee=3", "prog"}).options.tee, 3);  // without log files this flag has no effect
  EXPECT_EQ(parse_launch_command({"--local-ranks-filter=0,2", "prog"}).options.shown_ranks, (std::vector<int>{0, 2}));
}

// Words passed to an agent on another host arrive unchanged.
RC_GTEST_PROP(LaunchCommandLine, WordsComeBack, ()) {
  LaunchOptions options;
  const auto flip = [] { return *rc::gen::inRange(0, 2) == 1; };
  options.num_machines = *rc::gen::inRange(1, 5);
  options.machine_rank = options.num_machines == 1 ? 0 : *rc::gen::inRange(0, options.num_machines);
  options.num_processes = *rc::gen::inRange(1, 100);
  options.master_port = *rc::gen::inRange(1, 65536);
  options.master_addr = flip() ? "node-1.example" : "127.0.0.1";
  options.threads_per_process = *rc::gen::inRange(0, 9);
  options.prefix_output = flip();
  options.max_restarts = *rc::gen::inRange(0, 9);
  options.host_timeout = *rc::gen::inRange(1, 600) / 2.0;
  options.monitor_interval = *rc::gen::inRange(1, 50) / 10.0;
  options.heartbeat_timeout = *rc::gen::inRange(0, 500) / 100.0;
  options.hang_timeout = *rc::gen::inRange(-1, 900);
  options.stop_seconds = *rc::gen::inRange(0, 900);
  options.only_report = flip();
  if (flip()) options.job = "a job's name";
  if (flip()) {
    options.log_dir = "/some where/logs";
    options.tee = *rc::gen::inRange(0, 4);
    for (int i = *rc::gen::inRange(0, 3); i > 0; --i)
      options.tee_of_rank[*rc::gen::inRange(0, 8)] = *rc::gen::inRange(0, 4);
  }
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) options.shown_ranks.push_back(*rc::gen::inRange(0, 8));
  options.bind_cores = flip();
  if (options.bind_cores && flip()) options.bind_core_list = "0-1";
  if (flip()) options.host_label = "node7";

  Strings words = words_of(options);
  words.insert(words.end(), {"--", "prog", "--tee"});
  const LaunchCommand command = parse_launch_command(words);
  const LaunchOptions& back = command.options;
  RC_ASSERT(command.command == (Strings{"prog", "--tee"}));
  RC_ASSERT(back.num_machines == options.num_machines && back.machine_rank == options.machine_rank);
  RC_ASSERT(back.num_processes == options.num_processes && back.master_addr == options.master_addr);
  RC_ASSERT(back.master_port == options.master_port && back.threads_per_process == options.threads_per_process);
  RC_ASSERT(back.prefix_output == options.prefix_output && back.max_restarts == options.max_restarts);
  RC_ASSERT(back.host_timeout == options.host_timeout);
  RC_ASSERT(back.monitor_interval == options.monitor_interval && back.heartbeat_timeout == options.heartbeat_timeout);
  RC_ASSERT(back.hang_timeout == options.hang_timeout && back.stop_seconds == options.stop_seconds);
  RC_ASSERT(back.only_report == options.only_report && back.job == options.job && back.log_dir == options.log_dir);
  RC_ASSERT(back.tee == options.tee && back.tee_of_rank == options.tee_of_rank);
  RC_ASSERT(back.shown_ranks == options.shown_ranks && back.bind_cores == options.bind_cores);
  RC_ASSERT(back.bind_core_list == options.bind_core_list && back.host_label == options.host_label);
}

}  // namespace
}  // namespace tessera::launch
