// The gradient norm, in an order that depends neither on threads nor on how a parameter is sharded (DESIGN section 13).

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/sum_of_squares.h>
#include <tessera/optim/optimizer.h>

#include <algorithm>
#include <cmath>

namespace tessera::optim {
namespace {

/// Sum of squares of the fixed blocks of `gradient`, appended to `partial` in block order.
void partial_sums(const at::Tensor& gradient, std::vector<double>& partial) {
  const at::Tensor g = gradient.contiguous();
  const std::int64_t numel = g.numel(), blocks = (numel + kernels::sum_block - 1) / kernels::sum_block;
  const std::size_t base = partial.size();
  partial.resize(base + static_cast<std::size_t>(blocks));
  at::parallel_for(0, blocks, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t offset = b * kernels::sum_block, n = std::min(kernels::sum_block, numel - offset);
      double& sum = partial[base + static_cast<std::size_t>(b)];
      if (g.scalar_type() == at::kFloat) {
        sum = kernels::sum_of_squares(g.const_data_ptr<float>() + offset, n);
      } else {  // float64: the same blocks, one element after another
        const double* x = g.const_data_ptr<double>() + offset;
        for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
      }
    }
  });
}

}  // namespace

double gradient_norm(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  std::vector<double> partial;
  std::vector<at::Tensor>
      on_device;  // sums of gradients elsewhere than on the CPU: read back together, one synchronisation
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    if (gradient.layout() != at::kStrided || !at::isFloatingType(gradient.scalar_type()))
      throw InputError(concat("gradient_norm: a gradient is ", c10::toString(gradient.scalar_type()), " in layout ",
                              gradient.layout(), "; only dense floating-point gradients have a norm here"));
    if (!gradient.is_cpu()) {
      on_device.push_back(gradient.to(at::kDouble).square().sum());
    } else {
      const bool wide = gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kDouble;
      partial_sums(wide ? gradient : gradient.to(at::kFloat), partial);
    }
  }
  if (!on_device.empty()) partial.push_back(at::stack(on_device).sum().item<double>());
  double sum = 0;
  for (const double p : partial) sum += p;
  return std::sqrt(sum);
}

double clip_coefficient(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient >= 1 ? 1 : coefficient;  // a NaN norm stays visible
}

}  // namespace tessera::optim
