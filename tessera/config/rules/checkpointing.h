#pragma once
/// \file
/// Parses --gradient_checkpointing_kwargs, for checks, planner and training.

#include <tessera/layout/checkpoint_plan.h>

#include <string>

namespace tessera::config {

/// The keys are every, names, part, preserve_rng_state, early_stop, offload_inputs_to; Hugging Face's use_reentrant is
/// accepted without effect (the only implementation is not re-entrant). `text` is a JSON object or "every=2,...".
/// Throws InputError for other keys (with the nearest one) and for invalid values.
layout::CheckpointPlan parse_checkpoint_plan(const std::string& text);

}  // namespace tessera::config
