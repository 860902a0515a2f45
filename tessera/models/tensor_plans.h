#pragma once
/// \file
/// How tensor parallelism cuts a model as it is about to be trained: what its family says (architectures::tensor_plan),
/// what its config.json says, and its adapters.

#include <tessera/layout/tensor_plan.h>
#include <tessera/models/language_model.h>

namespace tessera::models {

/// The family's plan, changed by
///   - config.json's `base_model_tp_plan` or `tp_plan`, an object {pattern: style} as transformers has it (patterns
///     count from the base model, "layers.*.mlp.up_proj"): an entry takes the place of the family's style for what it
///     names, and keeps its heads and blocks; what it does not name stays as the family has it;
///   - LoRA adapters: where a map's outputs are cut, B's are, and A is whole; where its inputs are cut, A's are, and B
///     is whole (in sequence parallelism gradients of the whole ones are formed on parts of the tokens, and summed).
/// For TensorParallelOptions::plan. Throws InputError for a style that nobody knows (with the nearest) and an entry
/// that names no parameter.
layout::TensorPlan tensor_plan(const LanguageModel& model);

}  // namespace tessera::models
