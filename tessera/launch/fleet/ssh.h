#pragma once
/// \file
/// Runs one command on several hosts: starts an agent on each with ssh, or directly if the first host is this one.
/// ssh's standard input carries the job's secret, then one byte per signal; its end makes the remote agent stop, so
/// nothing is left there when this program dies or the connection breaks. With restarts, an agent whose ssh has exited
/// is started again as long as machine 0's agent runs, which ends the job when the machine does not return.

#include <tessera/launch/cli/command_line.h>
#include <string>
#include <vector>

namespace tessera::launch {

/// Runs the job on command.hosts; returns the exit code of the first agent that failed. `program` is the path of
/// `tessera`, the same on all hosts, and the working directory must exist there too. TESSERA_SSH replaces ssh and its
/// options ("ssh -p 2222 -i KEY").
int run_over_ssh(const LaunchCommand& command, const std::string& program);

/// The command (ssh or the value of TESSERA_SSH) that runs `line` (from remote_line()) on `host` without prompting. It
/// tolerates a silent host for `patience` seconds.
std::vector<std::string> ssh_command(const std::string& host, const std::string& line, double patience = 15);

/// The single argument for the remote shell: cd to `folder`, then `command` with `variables`, each part quoted.
std::string remote_line(const std::string& folder, const std::vector<std::string>& variables,
                        const std::vector<std::string>& command);

/// Reads the secret's line from standard input, in an agent started by run_over_ssh.
Secret secret_from_stdin();
/// Forks a process that turns bytes of standard input into signals to this one, and end of file into `end_signal`, then
/// SIGKILL after `patience` seconds. Call it before threads exist.
void obey_stdin(double patience, int end_signal);
/// The line such an agent prints on standard error once it has joined the others. run_over_ssh reads it and does not
/// show it: a host that never joined the job is not retried.
std::string joined_line(int machine);

/// Whether the name means this host: its own name, "localhost", or a loopback address.
bool is_this_host(const std::string& name);

}  // namespace tessera::launch
