#pragma once
/// \file
/// Cross-entropy of rows of logits, which are overwritten by the gradient, in one pass. For the formulas see
/// kernels/cpu/softmax_cross_entropy.h and nn/label_smoothing.h.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

struct CrossEntropyArgs {
  float scale = 1;              ///< factor of the gradients, not of the losses
  float smoothing = 0;          ///< label smoothing, in [0, 1)
  std::int64_t ignored = -100;  ///< rows with this target are not scored: loss 0, gradient 0
  bool gradient = true;         ///< false: the logits are unchanged
  std::int64_t padding = 0;     ///< columns after each row that contain no logits; their gradient is 0
};

/// For each row r of logits [rows, columns + padding], contiguous, with target t = targets[r]:
///   losses[r] = log sum_j exp(x_j) - x_t + smoothing (x_t - mean x)
///   x_j      := scale (softmax(x)_j - [j == t] + smoothing ([j == t] - 1 / columns))
/// in float32, the logarithm and the differences in double, each result rounded once to its type. A target outside [0,
/// columns) that is not `ignored` is not looked up: the row's loss and gradient become NaN. The order of additions is
/// fixed. Runs on `stream` (a cudaStream_t); returns before the work is done. Throws std::runtime_error with CUDA's
/// message when the launch fails.
void softmax_cross_entropy(Reals logits, const std::int64_t* targets, double* losses, std::int64_t rows,
                           std::int64_t columns, CrossEntropyArgs args, void* stream);

}  // namespace tessera::kernels::cuda
