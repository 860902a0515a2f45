#pragma once
/// \file
/// The command line of `tessera launch`, with the names that users of accelerate and torchrun know.

#include <tessera/launch/launcher.h>
#include <string>
#include <vector>

namespace tessera::launch {

struct LaunchCommand {
  LaunchOptions options;
  std::vector<std::string> command;  ///< the program and its arguments; a .py file runs with python3 -u
  bool help = false;                 ///< --help was given before the program
};

/// Options end at the first word that is not one (the program), or after "--". --x_y and --x-y are the same; values
/// follow as the next word or after '='. Throws InputError: unknown option (with the nearest name), missing or bad
/// value, no program, more than one host.
LaunchCommand parse_launch_command(const std::vector<std::string>& arguments);

/// The text of --help.
std::string launch_help();

}  // namespace tessera::launch
