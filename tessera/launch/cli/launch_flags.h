#pragma once
/// \file
/// The table of `tessera launch`'s options: names, help, and effect.

#include <tessera/launch/cli/command_line.h>
#include <tessera/launch/cli/training_flags.h>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// Streams as torchrun numbers them: 0 none, 1 standard output, 2 standard error, 3 both; one value for all local
/// ranks, and exceptions ("0:3,1:0"; we also accept "*:2,0:3").
struct StreamFlags {
  int all = 0;
  std::map<int, int> of_rank;
};

/// Values that can be interpreted only after all options have been read.
struct FlagValues {
  std::optional<int> total;        ///< accelerate's --num_processes: ranks of all machines
  std::optional<int> per_machine;  ///< torchrun's --nproc_per_node
  std::optional<int> machines, machine_rank;
  std::string address, endpoint;
  std::optional<int> port;
  bool standalone = false, module = false;
  std::string hostfile, host_list, include, exclude, bad_hosts;
  StreamFlags tee, redirects;
  TrainingFlags training;
};

struct LaunchFlag {
  std::vector<std::string> names;  ///< with '_' for '-'; the help shows the first ones
  std::string value;               ///< the value's name in the help; empty: a switch
  std::string help;                ///< empty: accepted, not shown
  std::function<void(LaunchCommand&, FlagValues&, const std::string& name, const std::string& value)> apply;
};

/// In the order of the help. A row without names starts a group: `help` is its title.
const std::vector<LaunchFlag>& launch_flags();

}  // namespace tessera::launch
