#pragma once
/// \file
/// A module's step as program texts, for devices that are here (compiled_training.h) or not (pjrt/topology.h).

#include <tessera/xla/compiled_step.h>
#include <tessera/xla/step/gradient_program.h>

#include <vector>

namespace tessera::xla {

/// The loss of a micro-batch of `batch` and the gradients of all parameters, captured. Throws as capture(),
/// and InputError for a loss that is not a scalar of fp32.
Graph capture_step(const parallel::ModuleParameters& module, const std::vector<ValueInfo>& batch,
                   const CompiledStep::Loss& loss);

/// The gradients' program of it. Throws as gradient_program().
GradientProgram program_of_step(const parallel::ModuleParameters& module, const std::vector<FlatUnit>& units,
                                const std::vector<ValueInfo>& batch, const CompiledStep::Loss& loss,
                                const TrainingOptions& options, int devices);

/// Those of a program text (gradient_program.h).
Collectives count_collectives(const std::string& program);

}  // namespace tessera::xla
