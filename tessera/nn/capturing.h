#pragma once
/// \file
/// Capturing a step as operators (xla/capture). While a step is captured, kernels that are not LibTorch operators are
/// bypassed, so that every computation is recorded. Every run of the captured step draws new random numbers.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::nn {

struct RandomPlace;

/// Random numbers of a captured step.
class CapturedDraws {
 public:
  virtual ~CapturedDraws() = default;
  /// The keep mask of dropout.h at `place`: fp32 [lines..., columns], 0 with probability p, else 1. `lines`: [rows,
  /// tokens], or [rows, heads, queries] of attention weights.
  virtual at::Tensor kept(const RandomPlace& place, at::IntArrayRef lines, std::int64_t columns, double p) = 0;
};

/// The captured draws of the calling thread; set while capture() runs, on the thread that runs forward and backward.
inline thread_local CapturedDraws* captured_draws = nullptr;
inline bool capturing() { return captured_draws != nullptr; }

}  // namespace tessera::nn
