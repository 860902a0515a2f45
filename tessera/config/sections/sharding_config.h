#pragma once
/// \file
/// Section "sharding" of a run's settings.

#include <tessera/config/sections/words.h>
#include <tessera/layout/residency.h>
#include <tessera/layout/strategy.h>

#include <cstdint>
#include <string>

namespace tessera {

/// Sharding of optimizer states, gradients and parameters over ranks. Plain data parallelism (ddp) is the strategy that
/// shards nothing. config/hf/sharding.h translates other systems' words.
struct ShardingConfig {
  std::string fsdp;                      ///< Hugging Face's words: "full_shard auto_wrap offload"
  std::string fsdp_config;               ///< JSON or YAML file, or a JSON object: see config/hf/fsdp_config.h
  std::int64_t zero_stage = -1;          ///< DeepSpeed's number, 0 to 3; -1: not given
  Strategy strategy = Strategy::ddp;     ///< the resulting strategy
  bool auto_strategy = false;            ///< "--strategy auto": the planner chooses strategy and mesh at start-up
  std::int64_t auto_min_batch_size = 1;  ///< auto_strategy: fewest rows of a micro-batch that it may choose
  std::int64_t auto_max_batch_size = 0;  ///< auto_strategy: most rows; 0: no limit
  MemoryCheck memory_check = MemoryCheck::refuse;  ///< what to do when the planner predicts that the run does not fit
  std::int64_t shard_group_size = 0;    ///< ranks that share one set of shards; 0: all (hybrid: the ranks of a host)
  Offload cpu_offload = Offload::none;  ///< states that are kept off the device
  std::string offload_folder;           ///< folder for memory-mapped files of offloaded memory (CPU); empty: TMPDIR
  AutoWrap auto_wrap_policy = AutoWrap::transformer_based;  ///< which modules are gathered and freed together
  /// "GPT2Block,...", our names or Hugging Face's; empty: the model's blocks
  std::string transformer_layer_cls_to_wrap;
  std::int64_t min_num_params = 100'000'000;  ///< size_based_wrap: parameters per unit
  std::string wrap_pattern;                   ///< regex_wrap: matched against whole module names
  std::string ignored_modules;                ///< pattern of whole module names that are excluded from all units
  layout::BackwardPrefetch backward_prefetch = layout::BackwardPrefetch::pre;  ///< when backward gathers the next unit
  bool forward_prefetch = true;                      ///< gather the next unit during the computation of the current one
  bool limit_all_gathers = true;                     ///< at most one unit is gathered ahead
  Choice reshard_after_forward = Choice::automatic;  ///< auto: the strategy's
  std::int64_t persistence_threshold = 0;            ///< parameters with at most this many elements stay whole
  std::int64_t reduce_bucket_size = 0;               ///< elements; 0: from ddp_bucket_cap_mb
  bool overlap_comm = true;                          ///< false: wait for every collective at once
  bool sync_module_states = true;                    ///< broadcast rank 0's parameters and buffers at the start
  bool cpu_ram_efficient_loading = true;             ///< each rank reads only its own part of the weights
  FloatType param_dtype = FloatType::fp32;           ///< type of gathered parameters
  FloatType reduce_dtype = FloatType::fp32;          ///< type in which gradients are communicated
  FloatType buffer_dtype = FloatType::fp32;          ///< type of floating-point buffers
  bool data_dependent = false;                       ///< ranks may skip modules or call them in different orders
  std::string grad_compression =
      "none";  ///< none | fp16 | bf16 | powersgd:rank=2 | topk:ratio=0.01 | onebit:warmup=100
};

}  // namespace tessera
