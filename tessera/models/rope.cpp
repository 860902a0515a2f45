#include <tessera/models/rope.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::models {
using architectures::Rope;
namespace {

using Type = Rope::Type;

/// theta^(-2i/D), i < D/2: in fp32 and in transformers' order, so that angles match bit for bit.
at::Tensor plain_frequencies(double theta, std::int64_t dim) {
  const at::Tensor exponents = at::arange(0, dim, 2, at::kLong).to(at::kFloat) / dim;
  return 1.0 / at::pow(theta, exponents);
}

at::Tensor longrope_frequencies(const Rope& c, const std::vector<double>& factors) {
  const at::Tensor exponents = at::arange(0, c.dim, 2, at::kLong).to(at::kFloat) / c.dim;
  return 1.0 / (at::tensor(factors, at::kFloat) * at::pow(c.theta, exponents));
}

at::Tensor llama3_frequencies(const Rope& c, const at::Tensor& plain) {
  const double old = static_cast<double>(c.original_max_positions);
  const at::Tensor length = 2 * std::numbers::pi / plain;  // length of each wave, in tokens
  const at::Tensor slow = length > old / c.low_freq_factor, fast = length < old / c.high_freq_factor;
  const at::Tensor scaled = at::where(slow, plain / c.factor, plain);
  const at::Tensor smooth = (old / length - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
  const at::Tensor blended = (1 - smooth) * scaled / c.factor + smooth * scaled;
  return at::where(slow.logical_or(fast), scaled, blended);
}

at::Tensor yarn_frequencies(const Rope& c) {
  const double dim = static_cast<double>(c.dim);
  const auto turning = [&](double rotations) {  // dimension whose wave makes this many turns in the old context
    return dim * std::log(static_cast<double>(c.original_max_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(c.theta));
  };
  double low = turning(c.beta_fast), high = turning(c.beta_slow);
  if (c.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp = ((at::arange(c.dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor powers = at::pow(c.theta, at::arange(0, c.dim, 2).to(at::kFloat) / c.dim);
  const at::Tensor kept = 1 - ramp;
  return 1.0 / (c.factor * powers) * (1 - kept) + 1.0 / powers * kept;
}

}  // namespace

at::Tensor inverse_frequencies(const Rope& c, std::int64_t sequence) {
  switch (c.type) {
    case Type::standard:
      return plain_frequencies(c.theta, c.dim);
    case Type::linear:
      return plain_frequencies(c.theta, c.dim) / c.factor;
    case Type::dynamic: {  // Hugging Face's NTK-aware base
      const double length = static_cast<double>(std::max(sequence, c.max_positions));
      const double dim = static_cast<double>(c.dim);
      const double stretch = c.factor * length / static_cast<double>(c.max_positions) - (c.factor - 1);
      return plain_frequencies(c.theta * std::pow(stretch, dim / (dim - 2)), c.dim);
    }
    case Type::yarn:
      return yarn_frequencies(c);
    case Type::llama3:
      return llama3_frequencies(c, plain_frequencies(c.theta, c.dim));
    case Type::longrope:
      return longrope_frequencies(c, sequence > c.original_max_positions ? c.long_factors : c.short_factors);
  }
  throw Error("rope type out of range");
}

}  // namespace tessera::models
