#pragma once
/// \file
/// GATHER and RESHARD of a schedule (layout/schedule/lower.h) for stages whose parameters an engine shards.

#include <tessera/layout/schedule/schedule.h>
#include <tessera/parallel/fully_shard.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

/// Set it as PipelineOptions::sharding:
///
///   StageGathers gathers(engine, {{0, names of the parameters of stage 0}, ...});
///   options.sharding = [&](const Action& action) { gathers.act(action); };
///   executor.run(with_sharding(schedule, Gathering::per_batch, /*reduce=*/false));
///
/// Between GATHER and RESHARD of a stage its units stay whole through all passes: one gather instead of one per pass.
/// During that time, they take whole_bytes of memory (ShardingMemory::whole). REDUCE does nothing: Sharded::reduce()
/// reduces all stages together. Not thread-safe. `sharded` must outlive it.
class StageGathers {
 public:
  /// The parameters of this rank's stages, by stage, under their names in `sharded`. A stage may have none.
  StageGathers(Sharded& sharded, std::map<int, std::vector<std::string>> parameters);
  /// Executes an action. GATHER is collective over the ranks that shard.
  void act(const layout::schedule::Action& action);
  /// Releases everything that a failed batch left whole.
  void drop() { whole_.clear(); }

 private:
  Sharded& sharded_;
  std::map<int, std::vector<std::string>> parameters_;
  std::map<int, std::unique_ptr<Sharded::Unsharded>> whole_;
};

}  // namespace tessera::parallel
