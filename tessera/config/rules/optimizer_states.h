#pragma once
/// \file
/// Sizes of optimizer states, as far as --optim_args determine them.

#include <tessera/config/sections/words.h>

namespace tessera {
struct OptimizationConfig;
}

namespace tessera::config {

/// Values per element that --optim rmsprop stores with these --optim_args: the mean square, the mean gradient
/// (centered=true), the momentum buffer (momentum above 0). Throws InputError if optim_args is invalid.
int rmsprop_states(const OptimizationConfig& config);

/// Whether --optim stores its moments in 8 bits (adamw_8bit, lion_8bit).
bool has_eight_bit_states(OptimizerKind optim);

/// Optimizer bytes per trained element: one or two moments of 4 bytes, 2 (--bf16_optimizer_states) or 1 1/16
/// (has_eight_bit_states(): a byte and a 64th of a scale; embeddings, which keep 32 bits, are not treated separately
/// here). Adafactor's rows and columns depend on shapes and count as 0; Muon counts as two moments for every element.
/// Throws InputError if optim_args is invalid.
double optimizer_state_bytes(const OptimizationConfig& config);
/// The same for an element whose states stay in 32 bits when the others have 8 (embedding tables).
double wide_state_bytes(const OptimizationConfig& config);

}  // namespace tessera::config
