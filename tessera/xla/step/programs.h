#pragma once
/// \file
/// A module's step as program texts, for this machine's devices (compiled_training.h) or others (pjrt/topology.h).

#include <tessera/xla/compiled_step.h>
#include <tessera/xla/pjrt/compile_options.h>
#include <tessera/xla/step/gradient_program.h>

#include <vector>

namespace tessera::xla {

/// Captures the loss of a micro-batch with the sizes and types in `batch`, and the gradients of all parameters. Throws
/// like capture(), and InputError for a loss that is not an fp32 scalar.
Graph capture_step(const parallel::ModuleParameters& module, const std::vector<ValueInfo>& batch,
                   const CompiledStep::Loss& loss);

/// As capture_step(), without gradients.
Graph capture_loss(const parallel::ModuleParameters& module, const std::vector<ValueInfo>& batch,
                   const CompiledStep::Loss& loss);

/// The units of a step with these options.
std::vector<FlatUnit> units_of(const parallel::ModuleParameters& module, const TrainingOptions& options, int devices);
/// A device's micro-batch, or for a global program that of all devices together.
std::vector<ValueInfo> rows_of_program(std::vector<ValueInfo> micro_batch, const TrainingOptions& options, int devices);
/// How the step's programs run on `devices` devices.
CompileOptions compile_options(const TrainingOptions& options, int devices);

/// The gradients' program of that step, for a device's micro-batch like `batch`. Throws like gradient_program().
GradientProgram program_of_step(const parallel::ModuleParameters& module, const std::vector<FlatUnit>& units,
                                const std::vector<ValueInfo>& batch, const CompiledStep::Loss& loss,
                                const TrainingOptions& options, int devices);

/// The program of that loss alone. Throws likewise.
GradientProgram program_of_loss(const parallel::ModuleParameters& module, const std::vector<FlatUnit>& units,
                                const std::vector<ValueInfo>& batch, const CompiledStep::Loss& loss,
                                const TrainingOptions& options, int devices);

/// Counts the collectives in a program text (gradient_program.h).
Collectives count_collectives(const std::string& program);
/// Counts those that the compiler put into an optimized program, a serialized xla.HloModuleProto or its text.
Collectives collectives_added(const std::string& optimized);

}  // namespace tessera::xla
