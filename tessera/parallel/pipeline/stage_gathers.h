#pragma once
/// \file
/// GATHER and RESHARD of a schedule (layout/schedule/lower.h) for stages whose parameters an engine divides.

#include <tessera/layout/schedule/schedule.h>
#include <tessera/parallel/fully_shard.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

/// Give it to PipelineOptions::sharding:
///
///   StageGathers gathers(engine, {{0, names of the parameters of stage 0}, ...});
///   options.sharding = [&](const Action& action) { gathers.act(action); };
///   executor.run(with_sharding(schedule, Gathering::per_batch, /*reduce=*/false));
///
/// Between GATHER and RESHARD of a stage its units stay whole, whatever passes come and go: one gather in place of one
/// per pass. They cost whole_bytes of memory meanwhile (ShardingMemory::whole). REDUCE does nothing: Sharded::reduce()
/// reduces all stages together. Not thread-safe. `sharded` outlives it.
class StageGathers {
 public:
  /// The parameters of this rank's stages, by stage, as `sharded` calls them. A stage may have none.
  StageGathers(Sharded& sharded, std::map<int, std::vector<std::string>> parameters);
  /// Collective over the ranks that shard, for GATHER.
  void act(const layout::schedule::Action& action);
  /// Lets go of what a batch that failed has left whole.
  void drop() { whole_.clear(); }

 private:
  Sharded& sharded_;
  std::map<int, std::vector<std::string>> parameters_;
  std::map<int, std::unique_ptr<Sharded::Unsharded>> whole_;
};

}  // namespace tessera::parallel
