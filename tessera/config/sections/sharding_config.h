#pragma once
/// \file
/// Section "sharding" of a run's settings.

#include <tessera/config/sections/words.h>
#include <tessera/layout/residency.h>
#include <tessera/layout/strategy.h>

#include <cstdint>
#include <string>

namespace tessera {

/// Which of {optimizer states, gradients, parameters} are divided over ranks, and how. Data-parallel training as such
/// (ddp) is the strategy that divides nothing. See config/hf/sharding.h for what follows from which words.
struct ShardingConfig {
  std::string fsdp;                      ///< Hugging Face's words: "full_shard auto_wrap offload"
  std::string fsdp_config;               ///< JSON or YAML file, or a JSON object: see config/hf/fsdp_config.h
  std::int64_t zero_stage = -1;          ///< DeepSpeed's number, 0 to 3; -1: not given
  Strategy strategy = Strategy::ddp;     ///< what all of these end in
  bool auto_strategy = false;            ///< "--strategy auto": the planner chooses strategy and mesh at the start
  std::int64_t auto_min_batch_size = 1;  ///< auto_strategy: the fewest rows of a micro-batch that it may choose,
  std::int64_t auto_max_batch_size = 0;  ///< and the most; 0: any number
  MemoryCheck memory_check = MemoryCheck::refuse;  ///< what becomes of a run that the planner says cannot fit
  std::int64_t shard_group_size = 0;    ///< ranks that share one set of shards; 0: all (hybrid: those of a host)
  Offload cpu_offload = Offload::none;  ///< what lies in files instead of memory
  std::string offload_folder;           ///< offloaded memory is mapped from its files (CPU); empty: TMPDIR
  AutoWrap auto_wrap_policy = AutoWrap::transformer_based;  ///< which modules are gathered and dropped as one
  std::string transformer_layer_cls_to_wrap;  ///< "GPT2Block,...", ours or Hugging Face's; empty: the model's blocks
  std::int64_t min_num_params = 100'000'000;  ///< size_based_wrap
  std::string wrap_pattern;                   ///< regex_wrap: of whole module names
  std::string ignored_modules;                ///< pattern of whole module names that stay out of all units
  layout::BackwardPrefetch backward_prefetch = layout::BackwardPrefetch::pre;  ///< when backward gathers the next unit
  bool forward_prefetch = true;                      ///< gather the next unit while one computes
  bool limit_all_gathers = true;                     ///< at most one unit is gathered ahead
  Choice reshard_after_forward = Choice::automatic;  ///< auto: the strategy's
  std::int64_t persistence_threshold = 0;            ///< parameters of at most so many elements stay whole
  std::int64_t reduce_bucket_size = 0;               ///< elements; 0: as ddp_bucket_cap_mb says
  bool overlap_comm = true;                          ///< false: every collective is waited for at once
  bool sync_module_states = true;                    ///< rank 0's parameters and buffers for all, at the start
  bool cpu_ram_efficient_loading = true;             ///< each rank reads its own part of the weights only
  FloatType param_dtype = FloatType::fp32;           ///< gathered parameters have it
  FloatType reduce_dtype = FloatType::fp32;          ///< gradients travel in it
  FloatType buffer_dtype = FloatType::fp32;          ///< floating-point buffers have it
  bool data_dependent = false;                       ///< ranks may skip modules or call them in another order
  std::string grad_compression =
      "none";  ///< none | fp16 | bf16 | powersgd:rank=2 | topk:ratio=0.01 | onebit:warmup=100
};

}  // namespace tessera
