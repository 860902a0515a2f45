#pragma once
/// \file
/// The table of strategies. DDP, ZeRO-1/2/3 and FSDP's strategies are one engine with switches: which states (optimizer
/// states, gradients, parameters) are sharded, and over which ranks. Configuration, planner and engine read this table.

#include <tessera/base/words.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Names of rows. zero3 and full_shard name the same row; NO_SHARD is ddp.
enum class Strategy : unsigned char {
  ddp,
  zero1,
  zero2,
  zero3,
  full_shard,
  shard_grad_op,
  hybrid_shard,
  hybrid_shard_zero2
};

/// Synonyms: DeepSpeed's "zero0" and "stage 0" to "stage 3", FSDP's NO_SHARD, _HYBRID_SHARD_ZERO2 and its numbers 1 to
/// 5.
const WordTable& words_of(Strategy);

/// The ranks that hold the shards of one complete set of states; other ranks hold replicas of a shard.
enum class ShardGroup {
  none,  ///< nothing is sharded: every rank of the data-parallel group holds a replica
  all,   ///< sharded over the data-parallel group
  host,  ///< sharded within a host, replicated across hosts
};

/// A row of the table.
struct StrategyRow {
  bool shard_optimizer = false;  ///< optimizer states are sharded; each rank updates its own
  /// gradients are reduced after every micro-batch, each time by a collective
  bool shard_gradients = false;
  bool shard_parameters = false;              ///< between steps
  bool reshard_after_forward = false;         ///< whole parameters are released between forward and backward
  ShardGroup shard_group = ShardGroup::none;  ///< ranks over which the shards are distributed

  /// DeepSpeed's equivalent stage, 0 to 3.
  int zero_stage() const { return reshard_after_forward ? 3 : shard_gradients ? 2 : shard_optimizer ? 1 : 0; }

  friend bool operator==(const StrategyRow&, const StrategyRow&) = default;
};

const StrategyRow& row_of(Strategy strategy);  ///< valid for the life of the program

/// The strategy of DeepSpeed's ZeRO stage 0 to 3.
Strategy zero_strategy(std::int64_t stage);

/// Whether both values name the same row, as zero3 and full_shard do.
bool same_strategy(Strategy a, Strategy b);

/// States that are offloaded.
enum class Offload : unsigned char {
  none,
  optimizer,  ///< optimizer states (handled by the optimizer: see Sharded::state_allocator())
  params,     ///< the shards of parameters and gradients, and therefore the optimizer step
  all
};
const WordTable& words_of(Offload);
inline bool offloads_optimizer(Offload place) { return place == Offload::optimizer || place == Offload::all; }
inline bool offloads_parameters(Offload place) { return place == Offload::params || place == Offload::all; }

/// A parameter type for functions that accept an enumerator or a name: any word of words_of(Strategy).
class StrategyName {
 public:
  StrategyName(Strategy strategy) : strategy_(strategy) {}  ///< implicit, so that either can be passed
  /// Throws InputError with the nearest known name.
  StrategyName(std::string_view name);
  StrategyName(const char* name) : StrategyName(std::string_view(name)) {}
  StrategyName(const std::string& name) : StrategyName(std::string_view(name)) {}

  operator Strategy() const { return strategy_; }  ///< the strategy that was given directly or by name

 private:
  Strategy strategy_;
};

}  // namespace tessera
