#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <tessera/nn/autocast.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/linear.h>

namespace tessera::nn {
namespace {

/// The type in which LibTorch's operations compute under autocast to `half` on this processor.
at::ScalarType here(at::ScalarType half) { return has_instructions(half) ? half : at::kFloat; }

TEST(Autocast, ProductsRunInBf16WhileItLives) {
  const at::Tensor a = at::ones({4, 4}), b = at::ones({4, 4});
  {
    const Autocast precision(true, at::kCPU);
    EXPECT_TRUE(autocast_enabled(at::kCPU));
    EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kBFloat16);
  }
  {
    const Autocast precision(at::kBFloat16, at::kCPU, /*wide=*/true);
    EXPECT_TRUE(autocast_enabled(at::kCPU));
    EXPECT_EQ(autocast_type(at::kCPU), at::kBFloat16);
    EXPECT_EQ(at::matmul(a, b).scalar_type(), here(at::kBFloat16)) << "several times slower without instructions";
  }
  EXPECT_FALSE(autocast_enabled(at::kCPU));
  EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kFloat);
}

TEST(Autocast, OrInFp16) {
  const at::Tensor x = at::ones({2, 3, 4}).requires_grad_(true), weight = at::full({4, 5}, 0.1).requires_grad_(true);
  EXPECT_EQ(autocast_type(at::kCPU), std::nullopt);
  at::Tensor y;
  {
    const Autocast precision(at::kHalf, at::kCPU);
    EXPECT_EQ(autocast_type(at::kCPU), at::kHalf);
    EXPECT_EQ(at::matmul(x, weight).scalar_type(), here(at::kHalf)) << "fp16 without instructions is 16 times slower";
    y = linear(x, weight, {}, WeightLayout::in_out);  // our own: rounded to fp16 inside, fp32 outside
  }
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  const float tenth = at::full({1}, 0.1).to(at::kHalf).to(at::kFloat).item<float>();  // 0.0999755859375
  EXPECT_EQ(y[0][0][0].item<float>(), at::full({1}, 4 * tenth).to(at::kHalf).to(at::kFloat).item<float>());
  y.sum().backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(weight.grad()[0][0].item<float>(), 6);
}

TEST(Autocast, SwitchedOffItDoesNothing) {
  const Autocast precision(false, at::kCPU);
  EXPECT_FALSE(autocast_enabled(at::kCPU));
}

TEST(Autocast, NestsAndRestoresWhatHeld) {
  const Autocast outer(true, at::kCPU);
  {
    const Autocast inner(true, at::kCPU);
    const Autocast nothing(false, at::kCPU);
    EXPECT_TRUE(autocast_enabled(at::kCPU));
  }
  EXPECT_TRUE(autocast_enabled(at::kCPU));
}

TEST(Autocast, GradientsOfWeightsStayFp32AndSeeNewWeights) {
  const at::Tensor weight = at::ones({4, 4}).requires_grad_(true), input = at::ones({2, 4});
  const auto forward = [&] {
    const Autocast precision(true, at::kCPU);
    return at::matmul(input, weight).to(at::kFloat).sum();
  };
  const at::Tensor loss = forward();
  loss.backward();
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(loss.item<double>(), 32);
  {
    const at::NoGradGuard no_grad;
    weight.fill_(2);  // as an optimizer does: the bf16 copy of the last forward must not be reused
  }
  EXPECT_EQ(forward().item<double>(), 64);
}

}  // namespace
}  // namespace tessera::nn
