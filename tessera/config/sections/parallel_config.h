#pragma once
/// \file
/// Section "parallel" of a run's settings.

#include <tessera/config/sections/words.h>
#include <tessera/layout/context_method.h>

#include <cstdint>
#include <string>

namespace tessera {

/// The processes: how they divide the work, find each other and notice that one is gone.
struct ParallelConfig {
  std::int64_t num_processes = 0;  ///< 0: not given (one process, or what the launcher's environment says)
  // The mesh of these processes: see config/core/mesh.h.
  std::int64_t pp_size = 1;  ///< processes that divide the layers among them, one after the other (pipeline parallel)
  std::string pipeline_schedule = "1f1b";     ///< a name of layout/schedule/table.h, or a file of a schedule
  std::int64_t pipeline_stages_per_rank = 0;  ///< v; 0: the fewest that the schedule takes
  std::int64_t pipeline_group_size = 0;       ///< what interleaved schedules take (schedule::Shape::group_size)
  std::string pipeline_layout = "";           ///< a layout string or a word of layout/stages.h; "": even
  PipelineGather pipeline_gather = PipelineGather::per_micro_batch;  ///< for strategies that divide parameters
  std::int64_t tp_size = 1;        ///< processes that divide each layer among them (tensor parallel)
  std::int64_t cp_size = 1;        ///< processes that divide each sequence among them (context parallel)
  std::int64_t ep_size = 1;        ///< processes that divide experts among them (expert parallel)
  std::int64_t etp_size = 0;       ///< those that divide each expert among them; 0: as tp_size
  bool sequence_parallel = false;  ///< with tp_size > 1: norms and dropout work on parts of the sequence, too
  bool tp_comm_overlap = false;    ///< TensorParallelOptions::overlap_products
  layout::ContextMethod cp_comm_type =
      layout::ContextMethod::p2p;  ///< how attention sees the other parts of a sequence
  std::int64_t cp_a2a_size =
      0;  ///< a2a+p2p: neighbours along cp that exchange heads; 0: the fewest that divide cp_size
  std::string backend = "auto";  ///< auto | local | shm | gloo | nccl | hier (shm inside a host, gloo or nccl across)
  bool deterministic_reduce = false;  ///< gradients are summed in the order of the logical shards (docs/strategies.md)
  std::int64_t logical_shards = 0;    ///< micro-batches of a step, over all processes; 0: processes x accumulation
  std::int64_t max_restarts = 0;      ///< times that the job is restarted from its newest checkpoint after a failure
  double hang_timeout = 0;            ///< seconds of sleep without progress that end a job; 0: 300; negative: never
  std::int64_t xla_devices = 0;       ///< devices of --device xla; 0: all that the PJRT plug-in has
  std::string pjrt_plugin = "";       ///< file of the PJRT plug-in; "": what the environment names
  std::string xla_cache_dir = "";     ///< compiled programs of --device xla; "": the user's cache folder, none: nowhere
  double ddp_bucket_cap_mb = 25;      ///< MiB of gradients that are reduced together
  bool ddp_find_unused_parameters = false;  ///< true: parameters may take no part in a step
  bool ddp_broadcast_buffers = true;        ///< rank 0's, for everyone after each reduction
  double ddp_timeout = 1800;                ///< seconds a collective may take
  std::int64_t main_process_port = 0;       ///< 0: any free port
  std::int64_t threads_per_process = 0;     ///< 0: cores / local ranks, at least 1
};

}  // namespace tessera
