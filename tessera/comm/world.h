#pragma once
/// \file
/// The World: made once per process by tessera::init() from the environment of any launcher; owns the store, the groups
/// and their orderly end. The project's only global.

#include <tessera/comm/fingerprint.h>
#include <tessera/comm/group.h>
#include <tessera/launch/cli/environment.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// How a process joins its job, where its environment does not say it.
struct InitOptions {
  /// auto | local | shm | hier | gloo | c10d_gloo | nccl. auto: local for one rank, nccl on CUDA; on the CPU shm when
  /// all ranks share a host, hier when several hosts have several ranks, else gloo. TESSERA_BACKEND overrides auto.
  /// c10d_gloo: LibTorch's Gloo with its own collectives, to compare with.
  std::string backend = "auto";
  /// cpu | cuda (device index = local rank modulo devices; needs the CUDA plug-in) | auto (cuda where that works)
  Device device = Device::cpu;
  double timeout_seconds = 1800;  ///< how long a collective may take, and the rendezvous (at most 300)
  /// What must be the same on all ranks, besides the build: names and values. Ranks that differ are refused within a
  /// second of joining, with the names that differ.
  comm::Fingerprint fingerprint = {};
};

namespace comm {

/// The job of this process: its ranks and their groups. Made once by tessera::init(), ended by tessera::shutdown().
class World {
 public:
  int rank() const;            ///< this process's place, from 0
  int size() const;            ///< ranks of the job
  int local_rank() const;      ///< place among the ranks of this host, from 0
  int local_size() const;      ///< ranks of this host
  c10::Device device() const;  ///< where this process's tensors are
  /// All ranks.
  const Group& group() const;
  /// A group of the given ranks (ascending). Collective over the whole world: every rank calls it with the same list,
  /// in the same order; ranks outside get an empty Group. Lists that differ, and members that do not come, are named
  /// (Error). `backend`: another transport than the world's, as InitOptions::backend names it; empty: the world's.
  Group new_group(const std::vector<int>& ranks, const std::string& name, const std::string& backend = "");

  /// The group that this rank is in after a division of ranks: the one of `lists` (each as above, disjoint) that has
  /// this rank, called "NAME FIRST" by its first rank; an empty Group when none has. Every rank of the world calls it
  /// with the same lists, in the same order among all calls of new_group and split, but waits for members of its own
  /// list only. The World keeps the group: the same call gives it again, at once. Ranks that group() or a former split
  /// have connected share those connections (alias.h); a list of one rank costs nothing.
  Group split(const std::vector<std::vector<int>>& lists, const std::string& name);

  struct Impl;
  explicit World(std::unique_ptr<Impl> impl);  ///< init() makes it
  ~World();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace comm

/// Joins the job. Without a launcher's environment: a world of one rank. Sets the log prefix, and LibTorch's threads to
/// OMP_NUM_THREADS if that is set; with several ranks SIGPIPE is ignored unless handled (a dead peer is an Error).
/// Ranks that are missing, run another build or joined twice are named on every rank (Error); an unusable backend,
/// device or port is an InputError. A second call throws.
comm::World& init(const InitOptions& options = {});
/// As init, from an explicit environment (tests fork ranks and call this).
comm::World& init(const launch::RankEnvironment& environment, const InitOptions& options);
/// The world; throws Error when init() was not called.
comm::World& world();
/// Between init() and shutdown().
bool initialized();
/// Leaves the job: waits for the other ranks, closes the groups (handles that live on throw when used), then the store.
/// Called at the end of a program that succeeded; safe to call twice. After an error on this rank do not call it, just
/// end: the others may never come, and the launcher ends them. After a failed collective it does not wait.
void shutdown();

}  // namespace tessera
