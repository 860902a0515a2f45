#pragma once
/// \file
/// The programs that end a step on this device's parts: the gradients' norm, and the optimizer's update.

#include <tessera/xla/compiled_step.h>
#include <tessera/xla/step/flat_units.h>

#include <string>
#include <vector>

namespace tessera::xla {

/// Arguments: accumulated gradients of trained units. Results: the norm over all devices; not `shard`: before it the
/// gradients (donated), summed over the devices.
std::string norm_program(const std::vector<FlatUnit>& units, int devices, bool shard);

/// Names of an optimizer's states: "exp_avg", "exp_avg_sq".
std::vector<std::string> state_names(const optim::ElementwiseOptions& optimizer);
/// What a state's elements are before the first step.
double first_state(const optim::ElementwiseOptions& optimizer);
/// What changes from step to step: the learning rate as step `step`, from 1, has it, `factor` of the gradients, and,
/// of Adam, 1 / (1 - beta1^step), 1 / (1 - beta2^step).
std::vector<double> update_scalars(const optim::ElementwiseOptions& optimizer, double learning_rate, double factor,
                                   std::int64_t step);

/// Arguments: for each trained unit its parameters, states and gradients (all donated), then update_scalars(). Results:
/// the same without the scalars, gradients as zeros. Not `options.shard`: gradients are those that norm_program()
/// returned.
std::string update_program(const std::vector<FlatUnit>& units, int devices, const TrainingOptions& options);

/// Bytes of parameters, gradients and the optimizer's states on each device.
std::int64_t bytes_of_states(const std::vector<FlatUnit>& units, const TrainingOptions& options);

}  // namespace tessera::xla
