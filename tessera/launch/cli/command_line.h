#pragma once
/// \file
/// launch/cli/: the command line of `tessera launch` with its help, and the environments of other launchers.
/// This header: the command line, with the option names that users of accelerate, torchrun and DeepSpeed know.

#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/cli/emit.h>
#include <tessera/launch/fleet/hostfile.h>
#include <string>
#include <vector>

namespace tessera::launch {

/// The parsed command line. start.h carries it out.
struct LaunchCommand {
  LaunchOptions options;
  std::vector<std::string> command;  ///< the program and its arguments; a .py file runs with python3 -u
  bool help = false;                 ///< --help was given before the program

  std::vector<HostSlots>
      hosts;              ///< from --hostfile or --host_list, filtered; empty: this host, or one agent of several
  bool over_ssh = false;  ///< true: start an agent on each of `hosts`; false: options.machine_rank is this machine's
                          ///< rank
  std::vector<std::string> exports;  ///< NAME or NAME=VALUE: variables for the ranks' environment, on all hosts
  std::string secret_file;           ///< the job's secret, mode 600, the same on all hosts
  bool secret_from_stdin = false;    ///< started by our own ssh: stdin carries the secret, then signals (ssh.h)
  bool trusted_network = false;      ///< allows several hosts without a secret
  std::string emit;                  ///< "slurm", "jobset", ...: print a job file instead of starting anything
  EmitOptions emission;
  std::vector<std::string> notes;  ///< notes for the user: files in use, settings without effect
};

/// Options end at the first word that is not one (the program), or after "--". --x_y and --x-y are equivalent; a value
/// is the next word or follows '='. Reads the hostfile and the training configuration files (training_flags.h). Throws
/// InputError: unknown option (with the nearest name), missing or bad value, contradictions, no program.
LaunchCommand parse_launch_command(const std::vector<std::string>& arguments);

/// The options that reproduce `options` in an agent on another host; parse_launch_command reads them back.
std::vector<std::string> words_of(const LaunchOptions& options);

/// The text of --help, for 80 columns.
std::string launch_help();

}  // namespace tessera::launch
