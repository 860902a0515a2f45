#pragma once
/// \file
/// Training settings given to the launcher: accelerate's flags and file, --fsdp and --deepspeed. They are checked here,
/// once, and passed to the ranks through their environment, as `accelerate launch` does
/// (config/accelerate/accelerate_environment.h), so that Tessera and Python programs follow them alike.

#include <string>
#include <utility>
#include <vector>

namespace tessera::launch {

struct LaunchCommand;
struct LaunchFlag;
struct FlagValues;

/// The options as typed, before any file is read.
struct TrainingFlags {
  struct Key {
    std::string section;  ///< section of accelerate's file; empty: the top
    std::string key, value, flag;
  };
  std::vector<Key> keys;
  std::vector<std::pair<std::string, std::string>> kinds;  ///< distributed_type, and the flag that set it
  std::string config_file;                                 ///< "none": ignore accelerate's default file too
  std::string fsdp, fsdp_config;
  bool cpu = false;
};

/// Table rows of these options, for launch_flags().
std::vector<LaunchFlag> training_flags();

/// Reads the files, checks everything, and adds to the command: exports for the ranks, notes for the user, and, where
/// no option sets them, the file's processes, machines, hosts and devices. Without --config_file accelerate's default
/// file is used if it exists (unless --cpu is given, as in accelerate), and named in the notes. Throws InputError with
/// all problems.
void take_training(FlagValues& given, LaunchCommand& command);

}  // namespace tessera::launch
