#pragma once
/// \file
/// Residual addition fused with layer or root-mean-square normalisation, forward and backward: kernels::layer_norm and
/// kernels::rms_norm (kernels/cpu) on a device, with elements of either type; sums are fp32.
///
/// All arrays are [rows, columns], contiguous, unless marked [columns] or [rows] below; columns < 2^30. Functions
/// return before the work is done, on `stream` (a cudaStream_t), and throw std::runtime_error with CUDA's message when
/// a launch fails. Four elements are read at a time if `columns` and all pointers allow it. Results depend only on the
/// arguments.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// sum = x + (delta + delta_bias), rounded to its type, and over each row of it (Ba et al. 2016)
///   y = (sum - mean) * rstd * weight + bias,  rstd = 1 / sqrt(average((sum - mean)^2) + eps)
/// or, if `mean` is null, root-mean-square normalisation (Zhang & Sennrich 2019): mean is 0, and the normalised row is
/// rounded to sum's type before the weight, as in transformers (LlamaRMSNorm.forward of modeling_llama.py).
struct NormForward {
  ConstReals x = {}, delta = {}, delta_bias = {};  ///< delta and delta_bias [columns] may be null
  ConstReals weight = {}, bias = {};               ///< [columns]; bias may be null
  double eps = 0;
  Reals sum = {};         ///< may be null if delta is null; may be x or delta if it has the same type
  Reals y = {};           ///< must not be any of the others
  float* mean = nullptr;  ///< [rows]
  float* rstd = nullptr;  ///< [rows]
};
void norm(const NormForward& a, std::int64_t rows, std::int64_t columns, void* stream);

/// g = dy * weight, n = (sum - mean) * rstd:
///   dx = dsum + rstd * (g - average(g) - n * average(g n));  ddelta is the same in its own type
///   dweight = sum over rows of dy n;  dbias = sum of dy;  ddelta_bias = sum of dx
/// Without a mean, average(g) is 0, and dbias and ddelta_bias do not exist.
struct NormBackward {
  ConstReals sum = {}, dy = {}, dsum = {};  ///< dsum may be null
  ConstReals weight = {};
  const float* mean = nullptr;  ///< null: root-mean-square normalisation
  const float* rstd = nullptr;
  Reals dx = {}, ddelta = {};                        ///< either may be null
  Reals dweight = {}, dbias = {}, ddelta_bias = {};  ///< [columns], written; each may be null
  float* partial = nullptr;                          ///< scratch of norm_partial_sums() floats; null if all three sums
                                                     ///< are null
};
void norm_backward(const NormBackward& a, std::int64_t rows, std::int64_t columns, void* stream);

/// Length of NormBackward::partial, in floats; a function of the shape.
std::int64_t norm_partial_sums(bool has_mean, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels::cuda
