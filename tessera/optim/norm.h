#pragma once
/// \file
/// The global gradient norm, bitwise identical regardless of how parameters are cut into shards (docs/strategies.md,
/// numerics).
///
/// Each parameter is cut into fixed blocks of 64 elements; a block's squares are summed in double precision in one
/// fixed order; block sums are added exactly (exact_sum.h) and the total is rounded once.

#include <ATen/core/Tensor.h>

#include <tessera/optim/exact_sum.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::optim {

/// A dense floating-point gradient, or elements [begin, begin + numel) of one. `begin` is a multiple of 64 unless the
/// piece is empty. Undefined: no gradient.
struct GradientPiece {
  at::Tensor gradient;     ///< shape [numel], or the gradient's own shape
  std::int64_t begin = 0;  ///< index of its first element in the whole gradient, flattened
};
/// Sums `words` in place over the ranks that hold the other pieces; collective.
using AllReduceWords = std::function<void(std::vector<std::int64_t>& words)>;

/// The sum of squares of all pieces on this rank. Throws InputError for a gradient that is not dense floating-point,
/// and Error for a piece that starts inside a block.
ExactSum squares_of(const std::vector<GradientPiece>& pieces);
/// L2 norm of all gradients of all ranks; bitwise identical on every rank and for every way of cutting. If there are
/// replicas of pieces, reduce over only one set of them. A NaN or infinity anywhere makes it NaN or infinite
/// everywhere.
double gradient_norm(const std::vector<GradientPiece>& pieces, const AllReduceWords& all_reduce);
/// L2 norm over whole gradients; bitwise equal to the sharded one.
double gradient_norm(const std::vector<at::Tensor>& gradients);
/// min(1, max_norm / (norm + 1e-6)); 1 when max_norm <= 0.
double clip_coefficient(double norm, double max_norm);

/// squares_of() on a CUDA device, without blocking the host: int64 [kernels::exact_words], to be summed over the ranks
/// that hold the other pieces. Throws Error for a gradient that is not float32 or bfloat16 on `device`.
at::Tensor squares_on_device(const std::vector<GradientPiece>& pieces, c10::Device device);
/// Computes the norm, clip_coefficient(), and whether the norm is not finite from those words, on their device, as one
/// kernels::cuda::StepScalars (kernels/cuda/step_scalars.h) in float64 [2], norm first.
at::Tensor step_scalars(const at::Tensor& words, double max_norm);

}  // namespace tessera::optim
