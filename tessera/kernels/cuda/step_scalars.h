#pragma once
/// \file
/// Scalars derived from the gradients' norm on the device, so that the host need not wait for it.

#include <tessera/kernels/cpu/exact_words.h>

#include <cstdint>

namespace tessera::kernels::cuda {

struct StepScalars {
  double norm;           ///< norm of all gradients, before clipping
  float gradient_scale;  ///< factor of the gradients: min(1, max_norm / (norm + 1e-6)), or 1
  std::uint32_t skip;    ///< 1: the norm is not finite, so the update changes nothing
};

/// Carries `words` [exact_words], so that the words of up to 2^16 ranks can be added. Runs on `stream`.
void carry_words(std::int64_t* words, void* stream);

/// Computes `scalars` from the exact sum of all squares, `words`; max_norm <= 0: gradients are not scaled. Bitwise the
/// same as optim::gradient_norm() and clip_coefficient(). Both functions throw std::runtime_error with CUDA's message
/// when the launch fails.
void form_step_scalars(const std::int64_t* words, double max_norm, StepScalars* scalars, void* stream);

}  // namespace tessera::kernels::cuda
