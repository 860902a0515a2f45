#pragma once
/// \file
/// One command for several hosts: an agent on each, started with ssh; the first one directly when it is this host. The
/// job's secret goes over ssh's standard input, then one byte for each signal; its end makes the remote agent stop, so
/// nothing is left there when this program dies or the line breaks. With restarts an agent whose ssh has ended is
/// started again, as long as machine 0's agent runs: that one ends the job when the machine does not come back.

#include <tessera/launch/cli/command_line.h>
#include <string>
#include <vector>

namespace tessera::launch {

/// Runs the job on command.hosts; the exit code of the first agent that failed. `program` is the path of `tessera`, the
/// same on all hosts, which also have this folder. TESSERA_SSH names another ssh with its options ("ssh -p 2222 -i
/// KEY").
int run_over_ssh(const LaunchCommand& command, const std::string& program);

/// ssh, or what TESSERA_SSH says in its place, that runs `line` (remote_line()) on `host` without asking anything. It
/// bears a host that gives no sign for `patience` seconds.
std::vector<std::string> ssh_command(const std::string& host, const std::string& line, double patience = 15);

/// The one word that the remote shell gets: cd to `folder`, then `command` with `variables`, each part quoted.
std::string remote_line(const std::string& folder, const std::vector<std::string>& variables,
                        const std::vector<std::string>& command);

/// For the agent that run_over_ssh started: reads the secret's line from standard input.
Secret secret_from_stdin();
/// From here on a process of its own turns bytes of standard input into signals to this one, and its end into
/// `end_signal`, then SIGKILL after `patience` seconds. Call it before threads exist.
void obey_stdin(double patience, int end_signal);
/// What such an agent says on standard error once it has met the others. It is for run_over_ssh, which does not show
/// it: a host that has never been in the job is not tried again.
std::string joined_line(int machine);

/// Whether the name means this host: its own name, "localhost", or a loopback address.
bool is_this_host(const std::string& name);

}  // namespace tessera::launch
