#pragma once
/// \file
/// How tensor parallelism cuts a model for training: by its family's plan (architectures::tensor_plan), its
/// config.json, and its adapters.

#include <tessera/layout/tensor_plan.h>
#include <tessera/models/language_model.h>

namespace tessera::models {

/// The family's plan, changed by
///   - config.json's `base_model_tp_plan` or `tp_plan`, an object {pattern: style} as in transformers (patterns are
///     relative to the base model, "layers.*.mlp.up_proj"): an entry replaces the family's style for matching
///     parameters and keeps their heads and blocks; other parameters keep the family's style;
///   - LoRA adapters: if a map's outputs are cut, so are B's, and A is whole; if its inputs are cut, so are A's, and B
///     is whole (in sequence parallelism gradients of the whole ones are computed on parts of the tokens, and summed).
/// For TensorParallelOptions::plan. Throws InputError for an unknown style (with the nearest one) and for an entry that
/// matches no parameter.
layout::TensorPlan tensor_plan(const LanguageModel& model);

}  // namespace tessera::models
