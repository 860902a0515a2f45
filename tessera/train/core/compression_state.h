#pragma once
/// \file
/// State that gradient compression carries from step to step (error feedback, PowerSGD's bases, number of steps) in
/// checkpoints. Every rank writes its own file and reads it back on resume. The state is tied to the rank and to how
/// gradients are divided: if the number of ranks or the division changes, it is reset, with a warning.

#include <tessera/comm/group.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/saving/save_plan.h>

#include <string>

namespace tessera::train {

/// State for SavedModel::of_rank; `stem`: that of the model's optimizer states. Empty for methods without state (none,
/// fp16 and bf16) and on one rank.
RankTensors compression_state(const Sharded& sharded, const comm::Group& all, const std::string& stem);

/// Restores the state of this rank of `all` from a checkpoint, before the first step. Rank 0 warns if the state cannot
/// be used. Throws InputError for a file that cannot be read. Every rank calls it; not collective.
void restore_compression(Sharded& sharded, const comm::Group& all, const std::string& folder, const std::string& stem);

}  // namespace tessera::train
