#pragma once
/// \file
/// `tessera launch --emit`: a ready-to-submit job file for a batch system, which starts one agent per host.

#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/fleet/hostfile.h>
#include <string>
#include <vector>

namespace tessera::launch {

struct EmitOptions {
  std::string job_name = "tessera";
  std::string time;        ///< Slurm's limit, "2:00:00"; empty: the partition's default
  std::string partition;   ///< Slurm's partition, Volcano's queue; empty: the default one
  std::string account;     ///< Slurm; empty: the default one
  std::string image;       ///< the container image; required for Kubernetes, optional for Slurm
  std::string container;   ///< Slurm with an image: "pyxis", "apptainer"; empty: apptainer for a .sif, else pyxis
  std::string mounts;      ///< Slurm with an image: additional folders, "/data:/data,/models"
  bool requeue = false;    ///< Slurm: requeues a job that has saved and stopped
  std::string name_space;  ///< Kubernetes; empty: the namespace of kubectl's context
  int gpus_per_machine = 0;
  int cpus_per_machine = 0;  ///< 0: Slurm decides; Kubernetes: no request
};

/// The job to emit. `options`: those of machine 0; `command`: the program with its arguments.
struct EmitJob {
  LaunchOptions options;
  std::vector<std::string> command;
  EmitOptions emission;
  std::string secret_hex;                 ///< 64 digits for the manifest's Secret (Kubernetes)
  std::vector<std::string> exports = {};  ///< NAME or NAME=VALUE for the ranks
};

/// An sbatch script. The job's secret is generated when the script runs, in a file of mode 600 next to it.
std::string emit_slurm(const EmitJob& job);
/// Manifests for Kubernetes. All of these functions give pods stop_seconds + 30 s between SIGTERM and SIGKILL, and
/// throw InputError without an image or for a name that Kubernetes refuses. This one emits a Secret, a headless Service
/// and an Indexed Job.
std::string emit_kubernetes(const EmitJob& job);
/// A Secret and a JobSet (jobset.x-k8s.io/v1alpha2): when a pod is evicted, all pods restart.
std::string emit_jobset(const EmitJob& job);
/// A Secret, a TrainingRuntime and the TrainJob that uses it (Kubeflow Trainer 2, trainer.kubeflow.org/v1alpha1).
std::string emit_trainjob(const EmitJob& job);
/// An MPIJob (kubeflow.org/v2beta1): its launcher starts an agent on each worker by ssh; MPI itself is not used.
std::string emit_mpijob(const EmitJob& job);
/// A Secret and a Volcano Job (batch.volcano.sh/v1alpha1) whose pods are gang-scheduled.
std::string emit_volcano(const EmitJob& job);
/// A Python program for `ray job submit` that starts one agent per machine on the nodes of a Ray cluster.
std::string emit_ray(const EmitJob& job);
/// DeepSpeed's hostfile.
std::string emit_hostfile(const std::vector<HostSlots>& hosts);

/// Quotes a word for a POSIX shell: 'it'\''s'. Words of harmless characters stay unquoted.
std::string quote_for_shell(const std::string& word);
/// Quotes a text with double quotes for JSON, YAML and Python. Throws InputError if it is not UTF-8.
std::string quote_for_yaml(const std::string& text);

/// The command line of the job's agent without the options that a job file fills in itself: number of machines and the
/// rendezvous address.
std::vector<std::string> agent_words(const EmitJob& job);
/// Seconds that a batch system leaves between its request to stop and its SIGKILL: the ranks' stop_seconds plus half a
/// minute for everything else.
int grace_seconds(const EmitJob& job);

}  // namespace tessera::launch
