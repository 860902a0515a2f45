#pragma once
/// \file
/// Activation checkpointing for our models (`--gradient_checkpointing`).

#include <tessera/models/language_model.h>
#include <tessera/parallel/recompute/checkpoint_plan.h>

#include <memory>

namespace tessera::models {

/// From now on the model's forward passes under grad mode checkpoint the parts that the plan chooses. Replaces the
/// model's part runner. Throws InputError when the plan chooses none of the model's parts (it names some). The
/// result tells what was offloaded.
std::shared_ptr<const parallel::ActivationCheckpointing> checkpoint_blocks(LanguageModel& model,
                                                                           const parallel::CheckpointPlan& plan);
/// What runs parts so; null: a runner that only calls them.
PartRunner part_runner_of(std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing);
/// Ends it.
void keep_activations(LanguageModel& model);

}  // namespace tessera::models
