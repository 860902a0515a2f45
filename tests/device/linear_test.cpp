// Gradients of fp32 weights under autocast on the double of the device: the sums of products themselves.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/nn.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>

namespace tessera::testing {
namespace {

const c10::Device cuda(c10::kCUDA, 0);

/// `passes` backward passes of a map under autocast to `type`; the gradient is formed now, or later, where it may be
/// added to grad() as it is formed. Returns the weight's and what it must be, in double precision.
std::pair<at::Tensor, at::Tensor> gradients(at::ScalarType type, nn::WeightLayout layout, bool apart, int passes,
                                            bool late) {
  const bool out_first = layout == nn::WeightLayout::out_in;
  at::manual_seed(3);
  const at::Tensor x = at::randn({2, 40, 16}), factor = at::randn({2, 40, 24}),
                   weight = at::randn(out_first ? at::IntArrayRef{24, 16} : at::IntArrayRef{16, 24});
  const at::Tensor there = x.to(cuda), w = weight.to(cuda).requires_grad_(), factors = factor.to(cuda).to(type);
  for (int pass = 0; pass < passes; ++pass) {
    const auto left = late ? c10::make_intrusive<nn::WeightGradients>() : c10::intrusive_ptr<nn::WeightGradients>();
    at::Tensor y;
    {
      const nn::Autocast autocast(type, c10::kCUDA);
      const nn::WeightGradients::Scope scope(left);
      y = apart ? at::cat(*nn::linear_apart(there, w, {}, layout, 3), -1) : nn::linear(there, w, {}, layout);
    }
    EXPECT_EQ(y.scalar_type(), type);
    if (late) {
      const nn::AccumulateInPlace in_place;
      const nn::WeightGradients::Scope scope(left, /*defer=*/true);
      y.backward(factors);
      left->compute();
    } else {
      y.backward(factors);
    }
  }
  const at::Tensor rows = x.to(type).to(at::kDouble).view({-1, 16}),
                   dy = factor.to(type).to(at::kDouble).view({-1, 24}),
                   want = at::mm(out_first ? dy.t() : rows.t(), out_first ? rows : dy) * passes;
  return {w.grad().cpu(), want};
}

TEST(DeviceLinear, GradientsOfFp32WeightsAreSumsInFp32) {
  on_the_double([] {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
      for (const nn::WeightLayout layout : {nn::WeightLayout::in_out, nn::WeightLayout::out_in})
        for (const bool apart : {false, true})
          for (const int passes : {1, 2})
            for (const bool late : {false, true}) {
              if (apart && type == at::kHalf) continue;  // our kernels have no fp16
              SCOPED_TRACE(concat(c10::toString(type), apart ? " apart" : "", late ? " late " : " ", passes));
              const auto [got, want] = gradients(type, layout, apart, passes, late);
              ASSERT_EQ(got.scalar_type(), at::kFloat);
              EXPECT_LT(((got - want).abs().max() / want.abs().max()).item<double>(), 1e-6);
            }
  });
}

TEST(DeviceLinear, WithoutAutocastOrGradientNothingIsWidened) {
  on_the_double([] {
    const at::Tensor x = at::randn({3, 8}).to(cuda), w = at::randn({16, 8}).to(cuda).requires_grad_();
    EXPECT_EQ(nn::linear(x, w, {}, nn::WeightLayout::out_in).scalar_type(), at::kFloat);
    const nn::Autocast autocast(true, c10::kCUDA);
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(nn::linear(x, w, {}, nn::WeightLayout::out_in).requires_grad());
  });
}

}  // namespace
}  // namespace tessera::testing
