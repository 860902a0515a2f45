#pragma once
/// \file
/// What gradient compression remembers from step to step (error feedback, PowerSGD's bases, how many steps are done),
/// in checkpoints: every rank writes what it has into a file of its own and reads it again when it goes on. It belongs
/// to its rank and to the way in which gradients are divided: another number of ranks or another division begins anew,
/// and says so.

#include <tessera/comm/group.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/saving/save_plan.h>

#include <string>

namespace tessera::train {

/// For SavedModel::of_rank; `stem`: that of the model's optimizer states. No file where nothing is remembered: without
/// compression, with fp16 and bf16, on one rank.
RankTensors compression_state(const Sharded& sharded, const comm::Group& all, const std::string& stem);

/// Puts back what this rank of `all` finds in a checkpoint, before the first step. What cannot go on is a warning of
/// rank 0. Throws InputError for a file that cannot be read. Every rank calls it; not collective.
void restore_compression(Sharded& sharded, const comm::Group& all, const std::string& folder, const std::string& stem);

}  // namespace tessera::train
