#pragma once
/// \file
/// Options of horovodrun as options of `tessera launch`: each acts, or is reported as being without effect, or an error
/// names the replacement. Settings for the ranks are passed in Horovod's own variables, which tessera.hvd reads.

#include <string>
#include <vector>

namespace tessera::launch {

struct HostSlots;
struct LaunchCommand;
struct LaunchFlag;
struct FlagValues;

/// The options as typed.
struct HorovodFlags {
  std::string hosts;               ///< -H: "one:2,two:4"
  std::string discovery_script;    ///< prints such hosts, one per line
  bool takes_first_slots = false;  ///< -np: ranks in the first slots of the hosts
  int slots_per_host = 0;          ///< for a script that prints names only
  int min_processes = 0, max_processes = 0;
  bool check_build = false;
};

/// The rows of these options, for launch_flags().
std::vector<LaunchFlag> horovod_flags();

/// Reads horovodrun's YAML if --config_file is one (options override it) and the output of --host_discovery_script.
/// Throws InputError.
void take_horovod(FlagValues& given, LaunchCommand& command);

/// "one:2,two:4". Throws InputError naming `flag`.
std::vector<HostSlots> parse_horovod_hosts(const std::string& list, const std::string& flag);

/// Returns the text of --check_build.
std::string horovod_build();

}  // namespace tessera::launch
