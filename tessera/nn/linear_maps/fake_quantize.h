#pragma once
/// \file
/// Numbers rounded to few bits but stored as floating-point numbers, for quantization-aware training: forward computes
/// with the values of the later quantized model, backward passes the gradient through as if nothing had been rounded
/// (the straight-through estimator, Bengio et al. 2013). Formulas are those of DeepSpeed's compression library: binary
/// weights of XNOR-Net (Rastegari et al. 2016), ternary ones of Li et al. 2016, else equal steps.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::nn {

/// How a tensor is rounded. Neighbouring numbers form a group that shares the rounding parameters; with g the numbers
/// of a group:
///   1 bit    sign(x) mean|g|
///   2 bits   where |x| > t = 0.7 mean|g|: sign(x) times the mean of those |x|; else 0
///   else     symmetric: s = 2 max|g| / 2^bits, round(x / s) within [-2^(bits-1), 2^(bits-1) - 1], times s
///            asymmetric: s = (max g - min g) / 2^bits, z = s round(min g / s), round((x - z) / s) within
///            [0, 2^bits - 1], times s, plus z
/// Ties are rounded to even. A group with an empty range is unchanged.
struct FakeQuantization {
  std::int64_t bits = 8;    ///< from 1 to 16
  bool asymmetric = false;  ///< requires more than 2 bits
  std::int64_t groups =
      1;  ///< number of equally long groups of consecutive numbers, row by row; 0: each row is a group
  bool stochastic = false;  ///< more than 2 bits: noise of Uniform(-0.5, 0.5) is added before rounding
  std::uint64_t key = 0;    ///< key of the noise: equal keys draw equal noise, on any process
  at::Tensor range =
      {};  ///< fp32 [2] on x's device: minimum and maximum, if all of x is one group; undefined: taken from x
  double exact =
      0;  ///< weight of the exact number in the result, from 0 to 1; the rounded number has the remaining weight
};

/// Rounds x [..., C] in fp32. The result has x's type, is contiguous, and has no gradient. Throws Error if x cannot be
/// divided into the groups.
at::Tensor rounded_to_bits(const at::Tensor& x, const FakeQuantization& how);

/// The same, differentiable: the gradient of x is that of the result. Saves nothing for backward.
at::Tensor fake_quantize(const at::Tensor& x, const FakeQuantization& how);

}  // namespace tessera::nn
