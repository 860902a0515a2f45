#pragma once
/// \file
/// launch/: starting ranks and staying alive. This header: what a rank learns from its launcher's environment.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// A rank's place in the job, whoever launched it.
struct RankEnvironment {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;            ///< 0 only when world_size is 1
  int store_fd = -1;              ///< rank 0: an already listening socket handed over by our launcher (TESSERA_STORE_FD)
  bool agent_hosts_store = false; ///< TORCHELASTIC_USE_AGENT_STORE=True: every rank is a client of the agent's store
  std::string launcher;           ///< "tessera", "torchrun", "mpirun", "srun", "none": for messages
};

/// Reads RANK/WORLD_SIZE/LOCAL_RANK/LOCAL_WORLD_SIZE/MASTER_ADDR/MASTER_PORT (tessera, torchrun), OMPI_COMM_WORLD_*
/// (mpirun), SLURM_PROCID/SLURM_NTASKS (srun), or nothing (one rank). `arguments`: --local-rank=N / --local_rank=N (what
/// torch.distributed.launch appends) is removed from it and checked against LOCAL_RANK. A half-set or contradictory
/// environment throws InputError that lists what is set and what is missing.
RankEnvironment read_rank_environment(std::vector<std::string>* arguments = nullptr,
                                      const std::function<std::optional<std::string>(const std::string&)>& getenv = {});

}  // namespace tessera::launch
