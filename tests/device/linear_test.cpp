// Gradients of fp32 weights under autocast on the simulated device: unrounded sums of products.
#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/nn.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>

#include <optional>
#include <utility>

namespace tessera::testing {
namespace {

const c10::Device cuda(c10::kCUDA, 0);

/// `passes` backward passes of a map under autocast to `type`; `in_place`: the gradient may be added to grad() as it is
/// formed. Returns the weight's gradient and its expected value, in double precision.
std::pair<at::Tensor, at::Tensor> gradients(at::ScalarType type, nn::WeightLayout layout, bool apart, int passes,
                                            bool in_place) {
  const bool out_first = layout == nn::WeightLayout::out_in;
  at::manual_seed(3);
  const at::Tensor x = at::randn({2, 40, 16}), factor = at::randn({2, 40, 24}),
                   weight = at::randn(out_first ? at::IntArrayRef{24, 16} : at::IntArrayRef{16, 24});
  const at::Tensor there = x.to(cuda).requires_grad_(), w = weight.to(cuda).requires_grad_(),
                   factors = factor.to(cuda).to(type);
  std::optional<nn::AccumulateInPlace> scope;  // on the engine's thread, which runs backward
  if (in_place)
    there.register_hook([&scope](const at::Tensor& gradient) {
      scope.reset();
      return gradient;
    });
  for (int pass = 0; pass < passes; ++pass) {
    at::Tensor y;
    {
      const nn::Autocast autocast(type, c10::kCUDA);
      y = apart ? at::cat(*nn::linear_apart(there, w, {}, layout, 3), -1) : nn::linear(there, w, {}, layout);
    }
    EXPECT_EQ(y.scalar_type(), type);
    if (in_place)
      y.register_hook([&scope](const at::Tensor& gradient) {
        scope.emplace();
        return gradient;
      });
    const at::Tensor before = w.grad();
    y.backward(factors);
    EXPECT_FALSE(scope.has_value());
    if (in_place && pass > 0) EXPECT_TRUE(w.grad().is_same(before));
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
            for (const bool in_place : {false, true}) {
              if (apart && type == at::kHalf) continue;  // our kernels do not support fp16
              SCOPED_TRACE(concat(c10::toString(type), apart ? " apart" : "", in_place ? " in place " : " ", passes));
              const auto [got, want] = gradients(type, layout, apart, passes, in_place);
              ASSERT_EQ(got.scalar_type(), at::kFloat);
              EXPECT_LT(((got - want).abs().max() / want.abs().max()).item<double>(), 1e-6);
            }
  });
}

TEST(DeviceLinear, GradientsOfWeightsMayComeLater) {
  on_the_double([] {
    for (const bool bf16 : {false, true}) {
      for (const bool apart : {false, true}) {
        at::manual_seed(4);
        const at::Tensor x = at::randn({2, 30, 16}).to(cuda), w = at::randn({16, 24}).to(cuda).requires_grad_(),
                         b = at::randn({24}).to(cuda).requires_grad_(), dy = at::randn({2, 30, 24}).to(cuda);
        const auto map = [&](const c10::intrusive_ptr<nn::WeightGradients>& late) {
          const nn::WeightGradients::Scope scope(late);
          const nn::Autocast autocast(bf16, c10::kCUDA);
          const auto layout = nn::WeightLayout::in_out;
          const at::Tensor y = apart ? at::cat(*nn::linear_apart(x, w, b, layout, 3), -1) : nn::linear(x, w, b, layout);
          return y.to(at::kFloat);
        };
        map({}).backward(dy);
        const at::Tensor wanted = std::exchange(w.mutable_grad(), at::Tensor()),
                         wanted_bias = std::exchange(b.mutable_grad(), at::Tensor());
        const auto late = c10::make_intrusive<nn::WeightGradients>();
        const at::Tensor y = map(late);
        {
          const nn::WeightGradients::Scope deferring(late, /*defer=*/true);
          y.backward(dy);
        }
        EXPECT_FALSE(w.grad().defined());
        late->compute();
        EXPECT_TRUE(w.grad().equal(wanted)) << bf16 << apart;
        EXPECT_TRUE(b.grad().equal(wanted_bias)) << bf16 << apart;
      }
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
