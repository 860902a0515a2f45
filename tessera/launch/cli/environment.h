#pragma once
/// \file
/// launch/: starts ranks and keeps them alive. This header: a rank's place in the job, read from its launcher's
/// environment.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// A rank's place in the job, under any launcher.
struct RankEnvironment {
  int rank = 0, world_size = 1;              ///< 0 <= rank < world_size
  int local_rank = 0, local_world_size = 1;  ///< rank among the ranks of this host
  std::string master_addr = "127.0.0.1";     ///< address of the job's store
  int master_port = 0;                       ///< 0 only when world_size is 1
  int store_fd = -1;  ///< on rank 0 of a program that forks its own ranks: a socket already listening on master_port
  bool agent_hosts_store = false;  ///< TORCHELASTIC_USE_AGENT_STORE=True: every rank is a client of the agent's store
  std::string launcher;            ///< "tessera", "torchrun", "mpirun", "srun", "kubernetes", "none"; used in messages
  std::string unvouched = {};      ///< "RANK=0, WORLD_SIZE=2" when a shell, a pod or an unknown launcher has set them:
      ///< nothing guarantees that the other ranks exist; empty: started by an agent that we recognize
  // Set by our own agent only (TESSERA_LAUNCHER=1).
  std::string
      store_address;   ///< TESSERA_STORE=host:port: our authenticated store in the agent; empty: a TCPStore is used
  int store_port = 0;  ///< 0 when store_address is empty
  int secret_fd = -1;  ///< TESSERA_SECRET_FD: inherited memfd with the 32-byte secret of the job's store
  int board_fd = -1;   ///< TESSERA_BOARD_FD: inherited memfd of this host's board (launch/agent/board.h)
  int generation = 0;  ///< TESSERA_GENERATION: 0 at first, incremented at each restart of the world
  std::string job;     ///< TESSERA_JOB: the job's id, equal on all ranks; empty: not set
  std::string memory_folder =
      {};  ///< TESSERA_MEMORY: a folder in memory that outlives the ranks (launch/agent/memory_folder.h)
};

/// Reads, in this order: RANK/WORLD_SIZE/LOCAL_RANK/LOCAL_WORLD_SIZE/MASTER_ADDR/MASTER_PORT (tessera, torchrun, by
/// hand), OMPI_COMM_WORLD_* (Open MPI), MV2_COMM_WORLD_* (MVAPICH2), PMI_* with MPI_LOCAL* (MPICH, Intel MPI),
/// SLURM_PROCID ... (srun), PMI_* alone; JOB_COMPLETION_INDEX with WORLD_SIZE or PET_NNODES and MASTER_ADDR or
/// PET_MASTER_ADDR (a pod of a Kubernetes Indexed Job, one rank each). Without any of these the process is a job of one
/// rank. An empty variable counts as not set.
///
/// `arguments`: --local-rank=N / --local_rank=N (appended by torch.distributed.launch) is removed from it and checked
/// against LOCAL_RANK; -1 (Hugging Face's "not distributed") is removed and has no effect.
///
/// Optional variables: LOCAL_RANK and LOCAL_WORLD_SIZE (without them the rank is assumed to be alone on its host, or,
/// when MASTER_ADDR is a loopback address, to share it with all others); under mpirun on one host and under srun also
/// MASTER_ADDR (this host; the first node of the step) and MASTER_PORT (derived from the job's id). A batch script that
/// Slurm runs without srun is one rank.
///
/// Variables of a pod, that is RANK and WORLD_SIZE next to PET_NPROC_PER_NODE (Kubeflow's torchrun) above 1 without
/// LOCAL_RANK, do not describe a rank: InputError refers to `tessera launch`, which reads them.
///
/// An incomplete or contradictory environment throws InputError that lists what is set and what is missing.
RankEnvironment read_rank_environment(std::vector<std::string>* arguments = nullptr,
                                      const std::function<std::optional<std::string>(const std::string&)>& getenv = {});

/// The first host of a Slurm node list: "node[03-05,9],other" -> "node03".
std::string first_slurm_host(const std::string& node_list);

}  // namespace tessera::launch
