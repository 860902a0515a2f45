#pragma once
/// \file
/// parallel/sharding/: DDP, ZeRO-1/2/3 and FSDP's strategies are one engine with switches. This header: the table of
/// them.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::parallel {

/// Which ranks hold the shards of one whole set of state, and which hold copies of a shard.
enum class ShardGroup {
  none,  ///< nothing is sharded: every rank of the data-parallel group holds a copy
  all,   ///< sharded over the data-parallel group
  host,  ///< sharded inside a host, copies across hosts
};

/// A row of the table: which of {optimizer states, gradients, parameters} are sharded, and over which ranks.
struct Strategy {
  std::string_view name;
  bool shard_optimizer;
  bool shard_gradients;
  bool shard_parameters;       ///< between steps
  bool reshard_after_forward;  ///< whole parameters are dropped between forward and backward
  ShardGroup shard_group;

  friend bool operator==(const Strategy&, const Strategy&) = default;
};

/// The whole table, the rows' main names being "ddp", "zero1", "zero2", "zero3", "shard_grad_op", "hybrid_shard",
/// "hybrid_shard_zero2".
std::span<const Strategy> strategies();

/// The row of a name that any of the known systems uses: a name above, DeepSpeed's "stage 0" to "stage 3" ("zero0"
/// too), FSDP's NO_SHARD, FULL_SHARD, SHARD_GRAD_OP, HYBRID_SHARD, HYBRID_SHARD_ZERO2 (also "_HYBRID_SHARD_ZERO2").
/// Case does not matter. Throws InputError with the nearest known name.
const Strategy& find_strategy(std::string_view name);
/// FSDP's and accelerate's number, 1 to 5. Throws InputError.
const Strategy& find_fsdp_strategy(int number);
/// DeepSpeed's ZeRO stage, 0 to 3. Throws InputError.
const Strategy& find_zero_stage(int stage);

}  // namespace tessera::parallel
