#pragma once
/// \file
/// What an optimizer keeps beside the weights, as far as --optim_args decide it.

#include <tessera/config/core/run_config.h>

namespace tessera::config {

/// Numbers per element that --optim rmsprop keeps with these --optim_args: the averages of squares, those of gradients
/// (centered=true), the momentum's (momentum above 0). Throws InputError where optim_args cannot be read.
int rmsprop_states(const OptimizationConfig& config);

}  // namespace tessera::config
