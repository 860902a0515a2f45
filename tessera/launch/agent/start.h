#pragma once
/// \file
/// Carries out what the command line of `tessera launch` asked for.

#include <tessera/launch/cli/command_line.h>

namespace tessera::launch {

/// Prints the help or a job file, starts agents over ssh, or runs this host's ranks (launcher.h). Returns the exit
/// code. `program` is this program, for the agents on other hosts. Throws InputError as its parts do.
int start(const LaunchCommand& command, const std::string& program);

/// The job's secret: of the file (64 hexadecimal digits, or 32 bytes; readable by its owner only), or, on one host or
/// with trusted_network, derived from what all machines know. Nothing: one host, the agent draws it. Throws InputError
/// when several hosts would be open to strangers.
std::optional<Secret> secret_of(const LaunchCommand& command);

/// Reads the secret's file. Throws InputError naming the path: mode, owner, contents.
Secret read_secret_file(const std::string& path);
Secret parse_secret(const std::string& digits, const std::string& where);
std::string secret_digits(const Secret& secret);

}  // namespace tessera::launch
