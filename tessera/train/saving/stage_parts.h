#pragma once
/// \file
/// What saving and loading do where ranks hold stages of a pipelined model (ShardingOptions::stages): each stage saves
/// and takes what is its own, and together they hold exactly what a folder has.

#include <tessera/comm/group.h>
#include <tessera/parallel/fully_shard.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace tessera::train {

/// An earlier stage holds this parameter, too, and saves it.
bool is_of_earlier_stage(const Sharded& sharded, const std::string& parameter);
/// The same of the parameter whose state this is: "exp_avg.h.0.weight".
bool is_state_of_earlier_stage(const Sharded& sharded, const std::string& state);

/// Where the ranks of `all` stand that deal out their tensors among each other.
struct Dealing {
  comm::Group group;  ///< all of them; where there are stages, or tensors cut over tp, those of this stage and part
  bool whole = true;  ///< this rank writes tensors that it has whole; false: another one, with the same, does
};
/// Collective over `all` where there are stages.
Dealing dealing_of(const Sharded& sharded, const comm::Group& all);

/// Numbers that `work` counts in this stage, added up over all stages: {of the folder, of this run}, say. What `work`
/// throws in one stage all of them throw. Collective over the stages; without stages just work().
using Counts = std::array<std::int64_t, 2>;
Counts count_over_stages(const Sharded& sharded, const std::function<Counts()>& work);

}  // namespace tessera::train
