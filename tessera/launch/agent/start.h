#pragma once
/// \file
/// Carries out a parsed command line of `tessera launch`.

#include <tessera/launch/cli/command_line.h>

namespace tessera::launch {

/// Prints the help or a job file, starts agents over ssh, or runs this host's ranks (launcher.h). Returns the exit
/// code. `program` is the path of this program, for the agents on other hosts. Throws InputError as these parts do.
int start(const LaunchCommand& command, const std::string& program);

/// The job's secret: read from the file (64 hexadecimal digits, or 32 bytes; readable by its owner only), or, on one
/// host or with trusted_network, derived from data that all machines know. nullopt: the agent generates it (one host
/// only). Throws InputError when several hosts would accept strangers.
std::optional<Secret> secret_of(const LaunchCommand& command);

/// Reads the secret's file. Throws InputError naming the path if its mode, owner or contents are wrong.
Secret read_secret_file(const std::string& path);
Secret parse_secret(const std::string& digits, const std::string& where);
std::string secret_digits(const Secret& secret);

}  // namespace tessera::launch
