#pragma once
/// \file
/// The World: created once per process by tessera::init() from any launcher's environment; owns the store and the
/// groups, and shuts them down in order. The project's only global.

#include <tessera/comm/fingerprint.h>
#include <tessera/comm/group.h>
#include <tessera/launch/cli/environment.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera {

/// How a process joins its job, beyond what the environment specifies.
struct InitOptions {
  /// auto | local | shm | hier | gloo | c10d_gloo | nccl. auto: local for one rank, nccl on CUDA; on the CPU shm if all
  /// ranks share a host, hier if several hosts have several ranks, else gloo. TESSERA_BACKEND overrides auto.
  /// c10d_gloo: LibTorch's Gloo with its own collectives, for comparison.
  std::string backend = "auto";
  /// cpu | cuda (device index = local rank modulo devices; needs the CUDA plug-in) | auto (cuda if it works)
  Device device = Device::cpu;
  double timeout_seconds = 1800;  ///< limit for a collective, and for the rendezvous (at most 300)
  /// Names and values that must be the same on all ranks, besides the build. Ranks that differ are refused within a
  /// second of joining; the error lists the differing names.
  comm::Fingerprint fingerprint = {};
};

namespace comm {

/// The job of this process: its ranks and their groups. Made once by tessera::init(), ended by tessera::shutdown().
class World {
 public:
  int rank() const;            ///< this process's rank, from 0
  int size() const;            ///< number of ranks of the job
  int local_rank() const;      ///< rank among the ranks of this host, from 0
  int local_size() const;      ///< number of ranks on this host
  c10::Device device() const;  ///< device of this process's tensors
  /// All ranks.
  const Group& group() const;
  /// Creates a group of the given ranks (ascending). Collective over the whole world: every rank calls it with the same
  /// list, in the same order; ranks outside the list get an empty Group. An Error names lists that differ and members
  /// that do not arrive. `backend`: as in InitOptions::backend; empty: the world's.
  Group new_group(const std::vector<int>& ranks, const std::string& name, const std::string& backend = "");

  /// Splits ranks into groups and returns this rank's: the list in `lists` (each as above, disjoint) that contains this
  /// rank, named "NAME FIRST" after its first rank; an empty Group if no list contains it. Every rank of the world
  /// makes the same call, in the same order among all calls of new_group and split, but waits only for members of its
  /// own list. The World keeps the group: the same call returns it again, immediately. Ranks already connected by
  /// group() or an earlier split share those connections (alias.h); a list of one rank costs nothing.
  Group split(const std::vector<std::vector<int>>& lists, const std::string& name);

  struct Impl;
  explicit World(std::unique_ptr<Impl> impl);  ///< called by init()
  ~World();

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace comm

/// Joins the job; without a launcher's environment, a world of one rank. Sets the log prefix, and LibTorch's threads to
/// OMP_NUM_THREADS if that is set; with several ranks SIGPIPE is ignored unless handled, so that a dead peer is an
/// Error. Missing ranks, ranks of another build and ranks that joined twice are named on every rank (Error); an
/// unusable backend, device or port is an InputError. A second call throws.
comm::World& init(const InitOptions& options = {});
/// As init, with an explicit environment (tests fork ranks and call this).
comm::World& init(const launch::RankEnvironment& environment, const InitOptions& options);
/// The world; throws Error before init().
comm::World& world();
/// True between init() and shutdown().
bool initialized();
/// Leaves the job: waits for the other ranks, closes the groups (remaining handles throw when used), then the store.
/// Call at the end of a successful program; a second call does nothing. After an error on this rank, exit without
/// calling it: the others may never arrive, and the launcher ends them. After a failed collective it does not wait.
void shutdown();

}  // namespace tessera
