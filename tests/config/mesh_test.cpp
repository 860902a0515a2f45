// The mesh that results from the settings of a run.

#include <tessera/config/core/mesh.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>

#include <tests/error_of.h>

namespace tessera::config {
namespace {

using layout::Axis;
using tessera::testing::error_of;

RunConfig settings(Strategy strategy, int tp = 1, int cp = 1, int group = 0, int pp = 1) {
  RunConfig config;
  config.sharding.strategy = strategy;
  config.sharding.shard_group_size = group;
  config.parallel.pp_size = pp;
  config.parallel.tp_size = tp;
  config.parallel.cp_size = cp;
  return config;
}

TEST(RunMesh, FollowsFromTheSettings) {
  using enum Strategy;
  struct Row {
    RunConfig config;
    int world, host;
    const char* mesh;
  };
  const Row rows[] = {
      {settings(ddp), 1, 1, "pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1"},
      {settings(ddp), 8, 4, "pp=1 dp_replicate=8 dp_shard=1 cp=1 tp=1"},
      {settings(ddp, 2), 8, 4, "pp=1 dp_replicate=4 dp_shard=1 cp=1 tp=2"},
      {settings(ddp, 1, 2), 8, 8, "pp=1 dp_replicate=4 dp_shard=1 cp=2 tp=1"},
      {settings(ddp, 2, 4), 8, 8, "pp=1 dp_replicate=1 dp_shard=1 cp=4 tp=2"},
      {settings(zero1), 8, 4, "pp=1 dp_replicate=1 dp_shard=8 cp=1 tp=1"},
      {settings(zero1, 2), 8, 4, "pp=1 dp_replicate=1 dp_shard=4 cp=1 tp=2"},
      {settings(full_shard, 2, 2), 8, 8, "pp=1 dp_replicate=1 dp_shard=2 cp=2 tp=2"},
      {settings(full_shard, 1, 2, 4), 8, 8, "pp=1 dp_replicate=2 dp_shard=2 cp=2 tp=1"},
      {settings(full_shard, 1, 4, 4), 8, 8, "pp=1 dp_replicate=2 dp_shard=1 cp=4 tp=1"},
      {settings(hybrid_shard), 8, 4, "pp=1 dp_replicate=2 dp_shard=4 cp=1 tp=1"},
      {settings(hybrid_shard), 4, 8, "pp=1 dp_replicate=1 dp_shard=4 cp=1 tp=1"},
      {settings(hybrid_shard, 2), 16, 8, "pp=1 dp_replicate=2 dp_shard=4 cp=1 tp=2"},
      {settings(hybrid_shard, 2, 2), 16, 8, "pp=1 dp_replicate=2 dp_shard=2 cp=2 tp=2"},
      {settings(hybrid_shard_zero2, 2, 1, 2), 8, 8, "pp=1 dp_replicate=2 dp_shard=2 cp=1 tp=2"},
      {settings(hybrid_shard, 4, 4, 4), 16, 8, "pp=1 dp_replicate=1 dp_shard=1 cp=4 tp=4"},
      {settings(ddp, 1, 1, 0, 4), 8, 8, "pp=4 dp_replicate=2 dp_shard=1 cp=1 tp=1"},
      {settings(zero1, 2, 1, 0, 2), 8, 8, "pp=2 dp_replicate=1 dp_shard=2 cp=1 tp=2"},
      {settings(full_shard, 1, 2, 0, 2), 16, 8, "pp=2 dp_replicate=1 dp_shard=4 cp=2 tp=1"},
      {settings(full_shard, 1, 1, 2, 2), 8, 8, "pp=2 dp_replicate=2 dp_shard=2 cp=1 tp=1"},
      {settings(hybrid_shard, 1, 1, 0, 2), 16, 4, "pp=2 dp_replicate=2 dp_shard=4 cp=1 tp=1"},
      {settings(hybrid_shard, 2, 1, 0, 4), 16, 8, "pp=4 dp_replicate=1 dp_shard=2 cp=1 tp=2"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(layout::describe(run_mesh(row.config, row.world, row.host)), row.mesh) << row.mesh;
}

TEST(RunMesh, ExpertsHaveAGridOfTheirOwn) {
  struct Row {
    int tp, ep, etp, world;
    const char* outcome;  ///< the expert grid, or the error
  };
  const Row rows[] = {
      {1, 4, 0, 8, "pp=1 edp=2 ep=4 etp=1"},
      {2, 2, 0, 8, "pp=1 edp=2 ep=2 etp=2"},
      {2, 4, 1, 8, "pp=1 edp=2 ep=4 etp=1"},
      {4, 2, 2, 8, "pp=1 edp=2 ep=2 etp=2"},
      {2, 1, 0, 4, "pp=1 edp=2 ep=1 etp=2"},
      {2, 2, 3, 8,
       "etp_size 3 does not divide tp_size 2: experts cannot be cut further than the layers around them; make it one "
       "of "
       "1, 2"},
      {1, 3, 0, 8,
       "ep_size 3 does not divide the 8 processes with different tokens (of 8 / pp_size 1 / tp_size 1); make it one "
       "of 1, 2, 4, 8"},
      {2, 8, 2, 8,
       "ep_size 8 does not divide the 4 groups of processes that share an expert (of 8 / pp_size 1 / etp_size "
       "2); make it one of 1, 2, 4"},
      {4, 2, 1, 8,
       "ep_size 2 x etp_size 1 is not a multiple of tp_size 4, so processes with the same part of the other layers "
       "would hold different experts; use etp_size 4, or ep_size a multiple of 4"},
  };
  for (const Row& row : rows) {
    RunConfig config = settings(Strategy::full_shard, row.tp);
    config.parallel.ep_size = row.ep;
    config.parallel.etp_size = row.etp;
    const std::string error = error_of([&] {
      EXPECT_EQ(layout::describe(run_mesh(config, row.world, row.world), layout::View::expert), row.outcome);
    });
    if (!error.empty()) {
      EXPECT_EQ(error, row.outcome);
    }
  }
}

TEST(RunMesh, WhatDoesNotFitIsRefusedWithWhatDoes) {
  using enum Strategy;
  struct Row {
    RunConfig config;
    int world, host;
    const char* error;
  };
  const Row rows[] = {
      {settings(ddp, 2), 1, 1,
       "tp_size 2 x cp_size 1 = 2 does not divide the 1 process of the run; start 2, or make the product one of 1"},
      {settings(ddp, 3), 8, 8,
       "tp_size 3 x cp_size 1 = 3 does not divide the 8 processes of the run; start 6 or 9, or make the product one of "
       "1, 2, 4, 8"},
      {settings(full_shard, 2, 4), 12, 4,
       "tp_size 2 x cp_size 4 = 8 does not divide the 12 processes of the run; start 8 or 16, or make the product one "
       "of 1, 2, 3, 4, 6, 12"},
      {settings(full_shard, 1, 1, 3), 8, 8,
       "shard_group_size 3 does not divide the 8 processes of the run; make it one of 1, 2, 4, 8"},
      {settings(full_shard, 2, 1, 8), 8, 8,
       "shard_group_size 8 does not divide the 8 processes of the run / tp_size 2 = 4; make it one of 1, 2, 4"},
      {settings(full_shard, 1, 4, 2), 8, 8,
       "shard_group_size 2 would split sequences, in groups of cp_size 4 that share a sequence; make it one of 4, "
       "8"},
      {settings(hybrid_shard), 6, 4,
       "the strategy hybrid_shard keeps shards inside a host, but the 4 processes of a host do not divide the 6 "
       "processes of the run; set shard_group_size and make it one of 1, 2, 3, 6"},
      {settings(hybrid_shard, 2, 4), 16, 4,
       "the strategy hybrid_shard keeps shards inside a host, but the 4 processes of a host are not a multiple of "
       "tp_size "
       "2 x cp_size 4; set shard_group_size and make it one of 4, 8"},
      {settings(ddp, 1, 1, 0, 3), 8, 8,
       "pp_size 3 does not divide the 8 processes of the run; start 6 or 9, or make it one of 1, 2, 4, 8"},
      {settings(ddp, 2, 1, 0, 3), 8, 8,
       "pp_size 3 x tp_size 2 = 6 does not divide the 8 processes of the run; start 6 or 12, or make the product one "
       "of 1, 2, 4, 8"},
      {settings(full_shard, 2, 1, 8, 2), 16, 8,
       "shard_group_size 8 does not divide the 16 processes of the run / pp_size 2 / tp_size 2 = 4; make it one of 1, "
       "2, 4"},
      {settings(hybrid_shard, 1, 1, 0, 4), 24, 4,
       "the strategy hybrid_shard keeps shards inside a host, but the 4 processes of a host and the 6 of a stage "
       "(pp_size 4) do not divide one another; set shard_group_size and make it one of 1, 2, 3, 6"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(error_of([&] { run_mesh(row.config, row.world, row.host); }), row.error) << row.error;
}

// For every valid mesh, the data-parallel size times the other axes is the world, and a shard group contains whole
// sequences.
RC_GTEST_PROP(RunMesh, SizesMultiplyToTheWorld, ()) {
  const Strategy strategy = *rc::gen::element(Strategy::ddp, Strategy::zero2, Strategy::full_shard,
                                              Strategy::hybrid_shard, Strategy::hybrid_shard_zero2);
  const int tp = *rc::gen::inRange(1, 5), cp = *rc::gen::inRange(1, 5), dp = *rc::gen::inRange(1, 9);
  const int hosts = *rc::gen::inRange(1, 5), group = *rc::gen::inRange(0, 9), pp = *rc::gen::inRange(1, 5);
  const RunConfig config = settings(strategy, tp, cp, group, pp);
  const int world = pp * tp * cp * dp;
  if (world % hosts != 0) return;
  const int host = world / hosts;
  const std::string problem = mesh_problem(config, world, host);
  if (!problem.empty()) {
    RC_ASSERT(error_of([&] { run_mesh(config, world, host); }) == problem);
    return;
  }
  const layout::Mesh mesh = run_mesh(config, world, host);
  RC_ASSERT(mesh.world_size() == world);
  RC_ASSERT(mesh.size(Axis::pp) == pp && mesh.size(Axis::tp) == tp && mesh.size(Axis::cp) == cp);
  RC_ASSERT(mesh.size(Axis::dp_replicate) * mesh.size(Axis::dp_shard) == data_parallel_ranks(config.parallel, world));
  if (strategy == Strategy::ddp) RC_ASSERT(mesh.size(Axis::dp_shard) == 1);
  const Axis shards[] = {Axis::dp_shard, Axis::cp};
  for (int rank = 0; rank < world; ++rank)
    for (const int other : layout::group_of(mesh, rank, shards)) {
      RC_ASSERT(other / (world / pp) == rank / (world / pp));  // same stage
      RC_ASSERT(row_of(strategy).shard_group != ShardGroup::host || group > 0 || other / host == rank / host);
    }
  if (strategy != Strategy::ddp && group > 0) RC_ASSERT(mesh.size(Axis::dp_shard) * cp == group);
}

// Every alternative that an error message suggests is accepted.
RC_GTEST_PROP(RunMesh, SuggestionsFit, ()) {
  const int tp = *rc::gen::inRange(1, 7), cp = *rc::gen::inRange(1, 7), world = *rc::gen::inRange(1, 65);
  const int group = *rc::gen::inRange(0, 13), pp = *rc::gen::inRange(1, 5);
  RunConfig config = settings(Strategy::full_shard, tp, cp, group, pp);
  const std::string problem = mesh_problem(config, world, 0);
  if (problem.empty()) return;
  const auto numbers = [&](std::string_view before, std::string_view after = {}) {
    const std::size_t begin = problem.find(before) + before.size();
    std::string list = problem.substr(begin, after.empty() ? after.npos : problem.find(after, begin) - begin);
    for (std::size_t at = list.find(" or "); at != list.npos; at = list.find(" or ")) list.replace(at, 4, ",");
    std::vector<int> found;
    for (const std::string& number : split(list, ',')) found.push_back(static_cast<int>(*parse_int(trim(number))));
    return found;
  };
  if (problem.starts_with("shard_group_size")) {
    for (const int fitting : numbers("make it one of ")) {
      config.sharding.shard_group_size = fitting;
      RC_ASSERT(mesh_problem(config, world, 0).empty());
    }
    return;
  }
  config.sharding.shard_group_size = 0;
  for (const int processes : numbers("; start ", ", or make ")) RC_ASSERT(mesh_problem(config, processes, 0).empty());
  for (const int product : numbers("one of ")) {
    config.parallel.pp_size = 1;
    config.parallel.tp_size = product;
    config.parallel.cp_size = 1;
    RC_ASSERT(mesh_problem(config, world, 0).empty());
  }
}

}  // namespace
}  // namespace tessera::config
