#pragma once
/// \file
/// Section "parallel" of a run's settings.

#include <tessera/config/sections/words.h>
#include <tessera/layout/context_method.h>

#include <cstdint>
#include <string>

namespace tessera {

/// The processes: how they divide the work, find each other and detect failures.
struct ParallelConfig {
  std::int64_t num_processes = 0;  ///< 0: not given (one process, or the launcher's number)
  // The mesh of these processes: see config/core/mesh.h.
  std::int64_t pp_size = 1;                   ///< pipeline-parallel processes, which divide the layers
  std::string pipeline_schedule = "1f1b";     ///< name from layout/schedule/table.h, or a schedule file
  std::int64_t pipeline_stages_per_rank = 0;  ///< stages per process (v); 0: the fewest that the schedule supports
  std::int64_t pipeline_group_size = 0;       ///< for interleaved schedules (schedule::Shape::group_size)
  std::string pipeline_layout = "";           ///< layout string or a word of layout/stages.h; "": even
  PipelineGather pipeline_gather = PipelineGather::per_micro_batch;  ///< for strategies that shard parameters
  std::int64_t tp_size = 1;        ///< tensor-parallel processes, which divide each layer
  std::int64_t cp_size = 1;        ///< context-parallel processes, which divide each sequence
  std::int64_t ep_size = 1;        ///< expert-parallel processes, which divide the experts
  std::int64_t etp_size = 0;       ///< processes that divide each expert; 0: tp_size
  bool sequence_parallel = false;  ///< with tp_size > 1: norms and dropout are sharded along the sequence
  bool tp_comm_overlap = false;    ///< TensorParallelOptions::overlap_products
  layout::ContextMethod cp_comm_type =
      layout::ContextMethod::p2p;  ///< how attention reads the other parts of a sequence
  std::int64_t cp_a2a_size =
      0;  ///< a2a+p2p: neighbours along cp that exchange heads; 0: smallest divisor of cp_size above 1
  std::string backend = "auto";       ///< or a row of layout/backends.h
  bool deterministic_reduce = false;  ///< sum gradients in the order of logical shards (docs/strategies.md)
  std::int64_t logical_shards = 0;    ///< micro-batches per step over all processes; 0: processes x accumulation
  std::int64_t max_restarts = 0;      ///< restarts from the newest checkpoint after failures
  double hang_timeout = 0;            ///< seconds without progress that end a job; 0: 300; negative: never
  std::int64_t xla_devices = 0;       ///< devices of --device xla; 0: all of the PJRT plug-in's
  bool xla_fsdp_v2 = false;           ///< --device xla: one global program, divided by the compiler
  std::string pjrt_plugin = "";       ///< PJRT plug-in file; "": from the environment
  std::string xla_cache_dir = "";     ///< compiled programs of --device xla; "": the user's cache; none: not stored
  double ddp_bucket_cap_mb = 25;      ///< MiB of gradients reduced together
  bool ddp_find_unused_parameters = false;  ///< parameters may be unused in a step
  bool ddp_broadcast_buffers = true;        ///< broadcast rank 0's buffers after each reduction
  double ddp_timeout = 1800;                ///< time limit of a collective in seconds
  std::int64_t main_process_port = 0;       ///< 0: any free port
  std::int64_t threads_per_process = 0;     ///< 0: cores / ranks of the host, at least 1
};

}  // namespace tessera
