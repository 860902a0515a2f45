#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/launch/command_line.h>

namespace tessera::launch {
namespace {

using Strings = std::vector<std::string>;

std::string message_of(const Strings& arguments) {
  try {
    parse_launch_command(arguments);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
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

TEST(LaunchCommandLine, HelpNamesTheOptions) {
  EXPECT_TRUE(parse_launch_command({"--help"}).help);
  EXPECT_TRUE(parse_launch_command({"-n", "2", "-h"}).help);
  EXPECT_FALSE(parse_launch_command({"prog", "--help"}).help);
  for (const char* name : {"--num_processes", "--main_process_port", "--main_process_ip", "--no_prefix"}) {
    EXPECT_NE(launch_help().find(name), std::string::npos) << name;
  }
}

TEST(LaunchCommandLine, MistakesAreNamed) {
  EXPECT_TRUE(says({"--num_proceses", "4", "prog"}, "unknown option --num_proceses; did you mean --num_processes?"));
  EXPECT_TRUE(says({"--zzzzzzzz", "prog"}, "unknown option --zzzzzzzz"));
  EXPECT_TRUE(
      says({"--num_processes", "four", "prog"}, "--num_processes four: expected a whole number from 1 to 4096"));
  EXPECT_TRUE(says({"--num_processes", "0", "prog"}, "expected a whole number"));
  EXPECT_TRUE(says({"--master_port=70000", "prog"}, "from 0 to 65535"));
  EXPECT_TRUE(says({"--num_processes"}, "needs a value"));
  EXPECT_TRUE(says({"--no_prefix=1", "prog"}, "takes no value"));
  EXPECT_TRUE(says({"--num_processes", "2"}, "no program was given"));
  EXPECT_TRUE(says({}, "no program was given"));
  EXPECT_TRUE(says({"--"}, "no program was given"));
  EXPECT_TRUE(says({"--nnodes=2", "prog"}, "one host"));
}

}  // namespace
}  // namespace tessera::launch
