#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <tessera/nn/autocast.h>

namespace tessera::nn {
namespace {

TEST(Autocast, ProductsRunInBf16WhileItLives) {
  const at::Tensor a = at::ones({4, 4}), b = at::ones({4, 4});
  {
    const Autocast precision(true, at::kCPU);
    EXPECT_TRUE(autocast_enabled(at::kCPU));
    EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kBFloat16);
  }
  EXPECT_FALSE(autocast_enabled(at::kCPU));
  EXPECT_EQ(at::matmul(a, b).scalar_type(), at::kFloat);
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
    weight.fill_(2);  // what an optimizer does: the bf16 copy of the last forward must not be used again
  }
  EXPECT_EQ(forward().item<double>(), 64);
}

}  // namespace
}  // namespace tessera::nn
