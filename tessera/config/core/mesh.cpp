#include <tessera/config/core/mesh.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>

#include <algorithm>

namespace tessera::config {
namespace {

/// The multiples of `part` nearest to `world_size`, below and above it.
std::string nearest_multiples(std::int64_t world_size, std::int64_t part) {
  const std::int64_t below = world_size / part * part;
  return below == 0 ? concat(part) : concat(below, " or ", below + part);
}

/// The multiples of `factor` that divide `number`.
std::string multiples_that_divide(std::int64_t number, std::int64_t factor) {
  std::vector<std::string> parts;
  for (std::int64_t d = 1; d * factor <= number && parts.size() < 16; ++d)
    if (number % (d * factor) == 0) parts.push_back(concat(d * factor));
  return join(parts, ", ");
}

/// Ranks of dp_shard x cp that share one set of shards. Valid when mesh_problem() is empty.
std::int64_t ranks_of_shards(const RunConfig& config, std::int64_t world_size, std::int64_t ranks_per_host) {
  const ParallelConfig& p = config.parallel;
  const ShardGroup group = row_of(config.sharding.strategy).shard_group;
  if (group == ShardGroup::none) return p.cp_size;
  if (p.ep_size > 1)
    return world_size / p.pp_size / p.tp_size;  // the engine shards over edp, an axis of the experts' grid
  if (config.sharding.shard_group_size > 0) return config.sharding.shard_group_size;
  const std::int64_t stage = world_size / p.pp_size;
  return (group == ShardGroup::host ? std::min(stage, ranks_per_host) : stage) / p.tp_size;
}

/// "tp_size 2 x cp_size 1 = 2", with pp_size if there are several stages.
std::string product_text(const ParallelConfig& p, const SaySetting& said) {
  std::vector<std::string> factors;
  const bool stages = p.pp_size > 1;
  if (stages) factors.push_back(concat(said("pp_size"), " ", p.pp_size));
  if (!stages || p.tp_size > 1) factors.push_back(concat(said("tp_size"), " ", p.tp_size));
  if (!stages || p.cp_size > 1) factors.push_back(concat(said("cp_size"), " ", p.cp_size));
  return concat(join(factors, " x "), factors.size() > 1 ? concat(" = ", ranks_per_sample(p)) : "");
}

/// Checks the grid of experts over the ranks of a stage.
std::string expert_problem(const ParallelConfig& p, int world_size, const SaySetting& said) {
  const std::int64_t stage = world_size / p.pp_size, etp = p.etp_size == 0 ? p.tp_size : p.etp_size;
  if (p.tp_size % etp != 0)
    return concat(said("etp_size"), " ", etp, " does not divide ", said("tp_size"), " ", p.tp_size,
                  ": experts cannot be cut further than the layers around them; make it one of ",
                  multiples_that_divide(p.tp_size, 1));
  const std::int64_t places = stage / etp;  // groups with whole experts
  if (p.ep_size > 1 && places % p.ep_size != 0)
    return concat(said("ep_size"), " ", p.ep_size, " does not divide the ", places,
                  etp > 1 ? " groups of processes that share an expert" : " processes with different tokens", " (of ",
                  world_size, " / pp_size ", p.pp_size, p.tp_size > 1 ? " / etp_size " : " / tp_size ", etp,
                  "); make it one of ", multiples_that_divide(places, 1));
  if (p.ep_size * etp % p.tp_size != 0)
    return concat(said("ep_size"), " ", p.ep_size, " x ", said("etp_size"), " ", etp, " is not a multiple of ",
                  said("tp_size"), " ", p.tp_size,
                  ", so processes with the same part of the other layers would hold different experts; use ",
                  "etp_size ", p.tp_size, ", or ep_size a multiple of ", p.tp_size / etp);
  return "";
}

}  // namespace

std::int64_t data_parallel_ranks(const ParallelConfig& parallel, std::int64_t processes) {
  return std::max<std::int64_t>(1, processes / ranks_per_sample(parallel));
}

std::string mesh_problem(const RunConfig& config, int world_size, int ranks_per_host, const SaySetting& say) {
  const auto said = [&](const char* name) { return say ? say(name) : std::string(name); };
  const ParallelConfig& p = config.parallel;
  const std::int64_t sample = ranks_per_sample(p);
  const std::string run = concat(world_size, world_size == 1 ? " process" : " processes", " of the run");
  if (world_size % sample != 0)
    return concat(product_text(p, said), " does not divide the ", run, "; start ",
                  nearest_multiples(world_size, sample),
                  p.pp_size == sample && sample > 1 ? ", or make it one of " : ", or make the product one of ",
                  multiples_that_divide(world_size, 1));
  const std::int64_t given = config.sharding.shard_group_size, stage = world_size / p.pp_size, all = stage / p.tp_size;
  if (const std::string wrong = expert_problem(p, world_size, said); !wrong.empty()) return wrong;
  if (p.ep_size > 1) {  // shards are divided among the processes with the same experts
    const std::int64_t alike = stage / (p.ep_size * (p.etp_size == 0 ? p.tp_size : p.etp_size));
    if (given > 0 && alike % given != 0)
      return concat(said("shard_group_size"), " ", given, " does not divide the ", alike,
                    " processes with the same experts (of ", stage, " with ", said("ep_size"), " ", p.ep_size,
                    "); make it one of ", multiples_that_divide(alike, 1));
    return "";
  }
  const std::string fitting = concat("make it one of ", multiples_that_divide(all, p.cp_size));
  if (given > 0) {
    if (all % given == 0 && given % p.cp_size == 0) return "";
    return concat(
        said("shard_group_size"), " ", given,
        all % given != 0 ? concat(" does not divide the ", run) : std::string(" would split sequences"),
        p.pp_size > 1 ? concat(" / pp_size ", p.pp_size) : "", p.tp_size > 1 ? concat(" / tp_size ", p.tp_size) : "",
        p.pp_size * p.tp_size > 1 ? concat(" = ", all) : "",
        p.cp_size > 1 ? concat(", in groups of cp_size ", p.cp_size, " that share a sequence") : "", "; ", fitting);
  }
  if (row_of(config.sharding.strategy).shard_group != ShardGroup::host || ranks_per_host <= 0) return "";
  const std::int64_t host = std::min<std::int64_t>(world_size, ranks_per_host), inside = std::min(stage, host);
  const std::int64_t parts = p.tp_size * p.cp_size;  // processes of a stage are consecutive
  const bool cuts = inside % parts != 0, straddles = stage > host ? stage % host != 0 : host % stage != 0;
  if (!cuts && !straddles && world_size % host == 0) return "";
  return concat("the strategy ", config.sharding.strategy, " keeps shards inside a host, but the ", host,
                " processes of a host ",
                cuts ? concat("are not a multiple of tp_size ", p.tp_size, " x cp_size ", p.cp_size)
                : world_size % host != 0
                    ? concat("do not divide the ", run)
                    : concat("and the ", stage, " of a stage (pp_size ", p.pp_size, ") do not divide one another"),
                "; set shard_group_size and ", fitting);
}

layout::Mesh run_mesh(const RunConfig& config, int world_size, int ranks_per_host) {
  TESSERA_CHECK(world_size >= 1 && ranks_per_host >= 1, "a mesh of ", world_size, " ranks on hosts of ",
                ranks_per_host);
  if (const std::string problem = mesh_problem(config, world_size, ranks_per_host); !problem.empty())
    throw InputError(problem);
  const ParallelConfig& p = config.parallel;
  const std::int64_t shards = ranks_of_shards(config, world_size, ranks_per_host) / p.cp_size;
  return layout::make_mesh({.sizes = {static_cast<int>(p.pp_size), 0, static_cast<int>(shards),
                                      static_cast<int>(p.cp_size), static_cast<int>(p.tp_size)},
                            .ep = static_cast<int>(p.ep_size),
                            .etp = static_cast<int>(p.etp_size)},
                           world_size);
}

}  // namespace tessera::config
