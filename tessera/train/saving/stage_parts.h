#pragma once
/// \file
/// Saving and loading when ranks hold stages of a pipelined model (ShardingOptions::stages): each stage saves and loads
/// its own tensors, and together they cover exactly the contents of a folder.

#include <tessera/comm/group.h>
#include <tessera/parallel/fully_shard.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace tessera::train {

/// Whether an earlier stage also holds this parameter and saves it.
bool is_of_earlier_stage(const Sharded& sharded, const std::string& parameter);
/// Same for the parameter of a state: "exp_avg.h.0.weight".
bool is_state_of_earlier_stage(const Sharded& sharded, const std::string& state);

/// The group of ranks among which this rank's tensors are distributed.
struct Dealing {
  comm::Group group;  ///< all ranks; with stages or tensors cut over tp, the ranks with this stage and part
  bool whole = true;  ///< this rank writes tensors that it holds whole; false: another rank with the same data does
};
/// Collective over `all` if there are stages.
Dealing dealing_of(const Sharded& sharded, const comm::Group& all);

/// Sums the counts that `work` returns over all stages, such as {count in the folder, count in this run}. An exception
/// in one stage is thrown in all. Collective over the stages; without stages just calls work().
using Counts = std::array<std::int64_t, 2>;
Counts count_over_stages(const Sharded& sharded, const std::function<Counts()>& work);

}  // namespace tessera::train
