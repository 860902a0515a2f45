#pragma once
/// \file
/// What an optimizer keeps beside the weights, as far as --optim_args decide it.

#include <tessera/config/core/run_config.h>

namespace tessera::config {

/// Numbers per element that --optim rmsprop keeps with these --optim_args: the averages of squares, those of gradients
/// (centered=true), the momentum's (momentum above 0). Throws InputError where optim_args cannot be read.
int rmsprop_states(const OptimizationConfig& config);

/// Bytes that the optimizer keeps per trained element: one moment or two, of 4 bytes or 2 (--bf16_optimizer_states).
/// Adafactor's rows and columns depend on shapes and count as 0, Muon as if it kept two moments of everything. Throws
/// InputError where optim_args cannot be read.
double optimizer_state_bytes(const OptimizationConfig& config);

}  // namespace tessera::config
