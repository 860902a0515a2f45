#pragma once
/// \file
/// The table of strategies. DDP, ZeRO-1/2/3 and FSDP's strategies are one engine with switches: which of {optimizer
/// states, gradients, parameters} are sharded, and over which ranks. Configuration, planner and engine read this table.

#include <tessera/base/words.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// A row's name. zero3 and full_shard are two names of one row; NO_SHARD is ddp.
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

/// The enumerators' names. Synonyms: DeepSpeed's "zero0" and "stage 0" to "stage 3", FSDP's NO_SHARD,
/// _HYBRID_SHARD_ZERO2 and its numbers 1 to 5.
const WordTable& words_of(Strategy);

/// Which ranks hold the shards of one whole set of state, and which hold copies of a shard.
enum class ShardGroup {
  none,  ///< nothing is sharded: every rank of the data-parallel group holds a copy
  all,   ///< sharded over the data-parallel group
  host,  ///< sharded inside a host, copies across hosts
};

/// A row of the table.
struct StrategyRow {
  bool shard_optimizer = false;               ///< states lie in shards; each rank updates its own
  bool shard_gradients = false;               ///< every micro-batch's gradients are reduced, so each is a collective
  bool shard_parameters = false;              ///< between steps
  bool reshard_after_forward = false;         ///< whole parameters are dropped between forward and backward
  ShardGroup shard_group = ShardGroup::none;  ///< over which ranks shards are divided

  /// DeepSpeed's stage that shards as much: 0 to 3.
  int zero_stage() const { return reshard_after_forward ? 3 : shard_gradients ? 2 : shard_optimizer ? 1 : 0; }

  friend bool operator==(const StrategyRow&, const StrategyRow&) = default;
};

const StrategyRow& row_of(Strategy strategy);  ///< lives as long as the program

/// DeepSpeed's ZeRO stage, 0 to 3.
Strategy zero_strategy(std::int64_t stage);

/// Whether the two name one row, as zero3 and full_shard do.
bool same_strategy(Strategy a, Strategy b);

/// Where shards, or optimizer states, live.
enum class Offload : unsigned char {
  none,
  optimizer,  ///< optimizer states (the optimizer's business: see Sharded::state_allocator())
  params,     ///< the shards of parameters and gradients, and with them the optimizer step
  all
};
const WordTable& words_of(Offload);
inline bool offloads_optimizer(Offload place) { return place == Offload::optimizer || place == Offload::all; }
inline bool offloads_parameters(Offload place) { return place == Offload::params || place == Offload::all; }

/// A strategy where a program may give the enumerator or a name: any word of words_of(Strategy).
class StrategyName {
 public:
  StrategyName(Strategy strategy) : strategy_(strategy) {}  ///< implicit, so that either may be given
  /// Throws InputError with the nearest known name.
  StrategyName(std::string_view name);
  StrategyName(const char* name) : StrategyName(std::string_view(name)) {}
  StrategyName(const std::string& name) : StrategyName(std::string_view(name)) {}

  operator Strategy() const { return strategy_; }  ///< what was given, or what the name meant

 private:
  Strategy strategy_;
};

}  // namespace tessera
