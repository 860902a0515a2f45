#include <tessera/parallel/sharding/strategy.h>

#include <tessera/base/error.h>

#include <array>

namespace tessera::parallel {
namespace {

// clang-format off
constexpr std::array table{
    //        name                  optim  grads  params reshard  group
    Strategy{"ddp",                false, false, false, false,   ShardGroup::none},
    Strategy{"zero1",              true,  false, false, false,   ShardGroup::all},
    Strategy{"zero2",              true,  true,  false, false,   ShardGroup::all},
    Strategy{"shard_grad_op",      true,  true,  true,  false,   ShardGroup::all},
    Strategy{"zero3",              true,  true,  true,  true,    ShardGroup::all},
    Strategy{"hybrid_shard",       true,  true,  true,  true,    ShardGroup::host},
    Strategy{"hybrid_shard_zero2", true,  true,  true,  false,   ShardGroup::host},
};
// clang-format on

struct Alias {
  std::string_view alias, name;
};

constexpr std::array aliases{
    Alias{"no_shard", "ddp"},     Alias{"stage 0", "ddp"},
    Alias{"zero0", "ddp"},        Alias{"stage 1", "zero1"},
    Alias{"stage 2", "zero2"},    Alias{"stage 3", "zero3"},
    Alias{"full_shard", "zero3"}, Alias{"_hybrid_shard_zero2", "hybrid_shard_zero2"},
};

const Strategy* find_main(std::string_view name) {
  for (const Strategy& strategy : table)
    if (strategy.name == name) return &strategy;
  return nullptr;
}

}  // namespace

std::span<const Strategy> strategies() { return table; }

const Strategy& find_strategy(std::string_view name) {
  const std::string lower = to_lower(name);
  std::string_view main = lower;
  for (const Alias& alias : aliases)
    if (alias.alias == lower) main = alias.name;
  if (const Strategy* strategy = find_main(main)) return *strategy;
  std::vector<std::string> known;
  for (const Strategy& strategy : table) known.emplace_back(strategy.name);
  for (const Alias& alias : aliases) known.emplace_back(alias.alias);
  const auto near = nearest(lower, known);
  throw InputError(concat("parallel strategy '", name, "' is unknown",
                          near ? concat("; did you mean '", *near, "'?") : "", " (known: ", join(known), ")"));
}

const Strategy& find_fsdp_strategy(int number) {
  static constexpr std::array<std::string_view, 5> names{"zero3", "shard_grad_op", "ddp", "hybrid_shard",
                                                         "hybrid_shard_zero2"};
  if (number < 1 || number > static_cast<int>(names.size()))
    throw InputError(concat("FSDP sharding strategy ", number,
                            " is unknown; it is 1 (FULL_SHARD), 2 (SHARD_GRAD_OP), 3 (NO_SHARD), "
                            "4 (HYBRID_SHARD) or 5 (HYBRID_SHARD_ZERO2)"));
  return *find_main(names[static_cast<std::size_t>(number - 1)]);
}

const Strategy& find_zero_stage(int stage) {
  static constexpr std::array<std::string_view, 4> names{"ddp", "zero1", "zero2", "zero3"};
  if (stage < 0 || stage >= static_cast<int>(names.size()))
    throw InputError(concat("ZeRO stage ", stage, " is unknown; it is 0, 1, 2 or 3"));
  return *find_main(names[static_cast<std::size_t>(stage)]);
}

}  // namespace tessera::parallel
