#pragma once
/// \file
/// What an optimizer keeps beside the weights, as far as --optim_args decide it.

#include <tessera/config/sections/words.h>

namespace tessera {
struct OptimizationConfig;
}

namespace tessera::config {

/// Numbers per element that --optim rmsprop keeps with these --optim_args: the averages of squares, those of gradients
/// (centered=true), the momentum's (momentum above 0). Throws InputError where optim_args cannot be read.
int rmsprop_states(const OptimizationConfig& config);

/// Whether --optim is one that keeps its moments in 8 bits (adamw_8bit, lion_8bit).
bool has_eight_bit_states(OptimizerKind optim);

/// Bytes that the optimizer keeps per trained element: one moment or two, of 4 bytes, 2 (--bf16_optimizer_states) or
/// 1 1/16 (has_eight_bit_states(): a byte and a 64th of a scale; those of embeddings, which stay wide, are not told
/// apart here).
/// Adafactor's rows and columns depend on shapes and count as 0, Muon as if it kept two moments of everything. Throws
/// InputError where optim_args cannot be read.
double optimizer_state_bytes(const OptimizationConfig& config);
/// The same of an element whose states stay in 32 bits where others are kept in 8 (tables of embeddings).
double wide_state_bytes(const OptimizationConfig& config);

}  // namespace tessera::config
