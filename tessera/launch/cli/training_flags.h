#pragma once
/// \file
/// Settings of training that are given to the launcher: accelerate's flags and file, --fsdp and --deepspeed. They are
/// checked here, once, and reach the ranks through their environment, as `accelerate launch` does it
/// (config/accelerate/accelerate_environment.h): our own programs and Python's obey them alike.

#include <string>
#include <utility>
#include <vector>

namespace tessera::launch {

struct LaunchCommand;
struct LaunchFlag;
struct FlagValues;

/// What was typed, before anything is read.
struct TrainingFlags {
  struct Key {
    std::string section;  ///< section of accelerate's file; empty: the top
    std::string key, value, flag;
  };
  std::vector<Key> keys;
  std::vector<std::pair<std::string, std::string>> kinds;  ///< distributed_type, and the flag that says so
  std::string config_file;                                 ///< "none": not even accelerate's default one
  std::string fsdp, fsdp_config;
  bool cpu = false;
};

/// The rows of these options, for launch_flags().
std::vector<LaunchFlag> training_flags();

/// Reads the files, checks everything, and adds to the command: exports for the ranks, notes for the user, and, where
/// no option says otherwise, what the file says of processes, machines, hosts and devices. Without --config_file
/// accelerate's default file is taken if there is one (unless --cpu is given, as there), and named in the notes. Throws
/// InputError with all problems.
void take_training(FlagValues& given, LaunchCommand& command);

}  // namespace tessera::launch
