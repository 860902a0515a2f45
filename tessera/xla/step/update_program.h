#pragma once
/// \file
/// The programs that end a step on the device's parts: the gradients' norm, and the optimizer's update.

#include <tessera/xla/compiled_step.h>
#include <tessera/xla/step/flat_units.h>

#include <string>
#include <vector>

namespace tessera::xla {

/// Arguments: accumulated gradients of trained units. Results: if not `options.shard`, the gradients (donated), summed
/// over the devices; then the norm over all devices.
std::string norm_program(const std::vector<FlatUnit>& units, int devices, const TrainingOptions& options);

/// Names of an optimizer's states: "exp_avg", "exp_avg_sq".
std::vector<std::string> state_names(const optim::ElementwiseOptions& optimizer);
/// Initial value of a state's elements.
double first_state(const optim::ElementwiseOptions& optimizer);
/// The values that change from step to step: the learning rate, the gradients' `factor` and, for Adam in step `step`
/// (from 1), 1 / (1 - beta1^step) and 1 / (1 - beta2^step).
std::vector<double> update_scalars(const optim::ElementwiseOptions& optimizer, double learning_rate, double factor,
                                   std::int64_t step);

/// Arguments: for each trained unit its parameters, states and gradients (all donated), then update_scalars(). Results:
/// the same without the scalars, with zero gradients. If not `options.shard`, the gradients are those returned by
/// norm_program().
std::string update_program(const std::vector<FlatUnit>& units, int devices, const TrainingOptions& options);

/// Bytes of parameters, gradients and optimizer states on each device.
std::int64_t bytes_of_states(const std::vector<FlatUnit>& units, const TrainingOptions& options);

}  // namespace tessera::xla
