#pragma once
/// \file
/// A module's step as program texts, for this machine's devices (compiled_training.h) or others (pjrt/topology.h).

#include <tessera/xla/compiled_step.h>
#include <tessera/xla/step/gradient_program.h>

#include <vector>

namespace tessera::xla {

/// Captures the loss of a micro-batch with the sizes and types in `batch`, and the gradients of all parameters. Throws
/// like capture(), and InputError for a loss that is not an fp32 scalar.
Graph capture_step(const parallel::ModuleParameters& module, const std::vector<ValueInfo>& batch,
                   const CompiledStep::Loss& loss);

/// The gradient program of that step. Throws like gradient_program().
GradientProgram program_of_step(const parallel::ModuleParameters& module, const std::vector<FlatUnit>& units,
                                const std::vector<ValueInfo>& batch, const CompiledStep::Loss& loss,
                                const TrainingOptions& options, int devices);

/// Counts the collectives in a program text (gradient_program.h).
Collectives count_collectives(const std::string& program);

}  // namespace tessera::xla
