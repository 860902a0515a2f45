#pragma once
/// \file
/// --gradient_checkpointing_kwargs as a value, for those who check, plan and train.

#include <tessera/layout/checkpoint_plan.h>

#include <string>

namespace tessera::config {

/// The keys are every, names, part, preserve_rng_state, early_stop, offload_inputs_to; Hugging Face's use_reentrant is
/// accepted (there is one implementation, which is not re-entrant). `text` is a JSON object or "every=2,...". Throws
/// InputError for other keys, with the nearest, and for values that are none.
layout::CheckpointPlan parse_checkpoint_plan(const std::string& text);

}  // namespace tessera::config
