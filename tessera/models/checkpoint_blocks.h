#pragma once
/// \file
/// Activation checkpointing for our models (`--gradient_checkpointing`).

#include <tessera/models/language_model.h>
#include <tessera/parallel/recompute/checkpoint_plan.h>

#include <memory>

namespace tessera::models {

/// Makes the model's forward passes under grad mode checkpoint the parts that the plan selects. Replaces the model's
/// part runner. Throws InputError, with the names of some parts, if the plan selects none of the model's parts. The
/// result reports what was offloaded.
std::shared_ptr<const parallel::ActivationCheckpointing> checkpoint_blocks(LanguageModel& model,
                                                                           const parallel::CheckpointPlan& plan);
/// The part runner of a checkpointing; null: a runner that only calls the parts.
PartRunner part_runner_of(std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing);
/// Ends checkpointing.
void keep_activations(LanguageModel& model);

}  // namespace tessera::models
