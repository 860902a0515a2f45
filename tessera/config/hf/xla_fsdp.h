#pragma once
/// \file
/// xla_fsdp_settings: the arguments of torch_xla's XlaFullyShardedDataParallel, as accelerate and transformers take
/// them (torch_xla/distributed/fsdp/xla_fully_sharded_data_parallel.py).

#include <tessera/config/core/translation.h>

#include <span>

namespace tessera::config {

/// Its keys.
std::span<const KeyRow> xla_fsdp_keys();

/// Gives `to` what the object says. Problems: unknown keys, values that ask for another computation than the compiled
/// step's.
void translate_xla_fsdp(const Value& settings, Translator& to);

/// Whether a file of accelerate asks for devices of XLA: xla: true beside or in fsdp_config, distributed_type XLA or
/// TPU.
bool asks_for_xla(const Value& accelerate_file);

}  // namespace tessera::config
