#include <tessera/nn/linear_maps/fake_quantize.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/nn/materialized.h>

namespace tessera::nn {
namespace {

/// a / b, and 0 where b is 0, as for a group with an empty range.
at::Tensor quotient(const at::Tensor& a, const at::Tensor& b) { return at::where(b.eq(0), at::zeros_like(a), a / b); }

/// Rounds to one or two bits.
at::Tensor few_levels(const at::Tensor& groups, std::int64_t bits) {
  const at::Tensor sizes = groups.abs(), mean = sizes.mean(1, /*keepdim=*/true);
  if (bits == 1) return groups.sign().mul_(mean);
  const at::Tensor large = sizes.gt(0.7 * mean).to(groups.scalar_type());
  const at::Tensor level = quotient((sizes * large).sum(1, /*keepdim=*/true), large.sum(1, /*keepdim=*/true));
  return groups.sign().mul_(large).mul_(level);
}

at::Tensor equal_steps(const at::Tensor& groups, const FakeQuantization& how) {
  const double levels = static_cast<double>(std::int64_t{1} << how.bits);
  at::Tensor step, zero;
  const bool given = how.range.defined();
  if (how.asymmetric) {
    const at::Tensor least = given ? how.range.slice(0, 0, 1).view({1, 1}) : groups.amin(1, /*keepdim=*/true);
    step = ((given ? how.range.slice(0, 1, 2).view({1, 1}) : groups.amax(1, /*keepdim=*/true)) - least) / levels;
    zero = quotient(least, step).round_().mul_(step);
  } else {
    step = (given ? how.range.abs().amax().view({1, 1}) : groups.abs().amax(1, /*keepdim=*/true)) * 2 / levels;
  }
  at::Tensor steps = how.asymmetric ? (groups - zero).div_(step) : groups / step;
  if (how.stochastic) {
    const at::Tensor noise = at::empty(groups.sizes(), at::kFloat)
                                 .uniform_(-0.5, 0.5, at::detail::createCPUGenerator(how.key))
                                 .to(groups.device());
    steps.add_(noise);
  }
  steps.round_();
  if (how.asymmetric)
    steps.clamp_(0, levels - 1).mul_(step).add_(zero);
  else
    steps.clamp_(-levels / 2, levels / 2 - 1).mul_(step);
  const at::Tensor empty = step.eq(0);
  return empty.any().item<bool>() ? at::where(empty, groups, steps) : steps;
}

struct FakeQuantize : torch::autograd::Function<FakeQuantize> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x, const FakeQuantization& how) {
    const Materialized materialized({&x});
    return rounded_to_bits(x, how);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor rounded_to_bits(const at::Tensor& x, const FakeQuantization& how) {
  TESSERA_CHECK(how.bits >= 1 && how.bits <= 16, "unsupported number of bits: ", how.bits, "; it must be in [1, 16]");
  TESSERA_CHECK(how.bits > 2 || (!how.asymmetric && !how.stochastic), "rounding to ", how.bits,
                " bits must be symmetric and to nearest");
  const at::NoGradGuard no_grad;
  if (x.numel() == 0) return x.clone();
  TESSERA_CHECK(!how.range.defined() || (how.groups == 1 && how.bits > 2),
                "a range can only be given for a single group and more than 2 bits");
  const std::int64_t groups = how.groups > 0 ? how.groups : x.numel() / x.size(-1);
  TESSERA_CHECK(x.numel() % groups == 0, "a tensor of ", x.numel(), " numbers cannot be divided into ", groups,
                " equal groups");
  const at::Tensor wide = x.to(at::kFloat).reshape({groups, -1});
  at::Tensor rounded = how.bits <= 2 ? few_levels(wide, how.bits) : equal_steps(wide, how);
  if (how.exact > 0) rounded = wide * how.exact + rounded * (1 - how.exact);
  return rounded.view(x.sizes()).to(x.scalar_type());
}

at::Tensor fake_quantize(const at::Tensor& x, const FakeQuantization& how) { return FakeQuantize::apply(x, how); }

}  // namespace tessera::nn
