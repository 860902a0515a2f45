#include <tessera/layout/strategy.h>

#include <tessera/base/error.h>

#include <array>

namespace tessera {
namespace {

// clang-format off
constexpr std::array<StrategyRow, 8> table{{
    // optim  grads  params reshard  group
    {false, false, false, false,   ShardGroup::none},  // ddp
    {true,  false, false, false,   ShardGroup::all},   // zero1
    {true,  true,  false, false,   ShardGroup::all},   // zero2
    {true,  true,  true,  true,    ShardGroup::all},   // zero3
    {true,  true,  true,  true,    ShardGroup::all},   // full_shard
    {true,  true,  true,  false,   ShardGroup::all},   // shard_grad_op
    {true,  true,  true,  true,    ShardGroup::host},  // hybrid_shard
    {true,  true,  true,  false,   ShardGroup::host},  // hybrid_shard_zero2
}};
// clang-format on

}  // namespace

const WordTable& words_of(Strategy) {
  static const WordTable words = {
      {"ddp", "zero1", "zero2", "zero3", "full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"},
      {{"no_shard", "ddp"},
       {"zero0", "ddp"},
       {"_hybrid_shard_zero2", "hybrid_shard_zero2"},
       {"1", "full_shard"},  // torch.distributed.fsdp.ShardingStrategy
       {"2", "shard_grad_op"},
       {"3", "ddp"},
       {"4", "hybrid_shard"},
       {"5", "hybrid_shard_zero2"},
       {"stage 0", "ddp"},  // DeepSpeed
       {"stage 1", "zero1"},
       {"stage 2", "zero2"},
       {"stage 3", "zero3"}}};
  return words;
}

const WordTable& words_of(Offload) {
  static const WordTable words = {{"none", "optimizer", "params", "all"},
                                  {{"true", "all"}, {"false", "none"}}};  // accelerate's offload_params
  return words;
}

const StrategyRow& row_of(Strategy strategy) { return table[static_cast<std::size_t>(strategy)]; }

Strategy zero_strategy(std::int64_t stage) {
  TESSERA_CHECK(stage >= 0 && stage <= 3, "ZeRO stage ", stage, " is unknown; it must be 0, 1, 2 or 3");
  return static_cast<Strategy>(stage);  // ddp, zero1, zero2, zero3
}

bool same_strategy(Strategy a, Strategy b) { return row_of(a) == row_of(b); }

StrategyName::StrategyName(std::string_view name) {
  const auto found = parse_word<Strategy>(name);
  if (!found) {
    const WordTable& words = words_of(Strategy{});
    std::vector<std::string> known = words.words;
    for (const auto& [theirs, ours] : words.synonyms) known.emplace_back(theirs);
    const auto near = nearest(to_lower(name), known);
    throw InputError(concat("parallel strategy '", name, "' is unknown",
                            near ? concat("; did you mean '", *near, "'?") : "", " (known: ", join(known), ")"));
  }
  strategy_ = *found;
}

}  // namespace tessera
