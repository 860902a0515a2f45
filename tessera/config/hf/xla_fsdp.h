#pragma once
/// \file
/// xla_fsdp_settings: the arguments of torch_xla's XlaFullyShardedDataParallel, as accepted by accelerate and
/// transformers (torch_xla/distributed/fsdp/xla_fully_sharded_data_parallel.py).

#include <tessera/config/core/translation.h>

#include <span>

namespace tessera::config {

/// The table of the object's keys.
std::span<const KeyRow> xla_fsdp_keys();

/// Translates the object into settings of `to`; `v2`: xla_fsdp_v2 is true. Problems: unknown keys, and values that
/// would change the compiled step's computation.
void translate_xla_fsdp(const Value& settings, bool v2, Translator& to);

/// Whether accelerate's file requests XLA devices: xla: true in or next to fsdp_config, or distributed_type XLA or TPU.
bool asks_for_xla(const Value& accelerate_file);

}  // namespace tessera::config
