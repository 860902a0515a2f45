#pragma once
/// \file
/// `tessera launch --emit`: a ready job file for a batch system, with one agent per host in it.

#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/fleet/hostfile.h>
#include <string>
#include <vector>

namespace tessera::launch {

struct EmitOptions {
  std::string job_name = "tessera";
  std::string time;        ///< Slurm's limit, "2:00:00"; empty: the partition's default
  std::string partition;   ///< Slurm; empty: the default one
  std::string account;     ///< Slurm; empty: the default one
  std::string image;       ///< Kubernetes: the container image; must be given
  std::string name_space;  ///< Kubernetes; empty: the one of kubectl's context
  int gpus_per_machine = 0;
  int cpus_per_machine = 0;  ///< 0: Slurm decides; Kubernetes: no request
};

/// What to start: `options` as for machine 0, `command` the program with its arguments.
struct EmitJob {
  LaunchOptions options;
  std::vector<std::string> command;
  EmitOptions emission;
  std::string secret_hex;                 ///< 64 digits for the manifest's Secret (Kubernetes)
  std::vector<std::string> exports = {};  ///< NAME or NAME=VALUE for the ranks
};

/// An sbatch script. The job's secret is made when it runs, in a file of mode 600 beside the script.
std::string emit_slurm(const EmitJob& job);
/// A Secret, a headless Service and an Indexed Job. Throws InputError: no image, or a name that Kubernetes refuses.
std::string emit_kubernetes(const EmitJob& job);
/// DeepSpeed's hostfile.
std::string emit_hostfile(const std::vector<HostSlots>& hosts);

/// A word as a POSIX shell reads it back: 'it'\''s'. Words of harmless characters stay as they are.
std::string quote_for_shell(const std::string& word);

}  // namespace tessera::launch
