#pragma once
/// \file
/// Compares an operation's fused fp32 path with its ATen composition, which runs in fp64: values and all gradients.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace compare {

using Tensors = std::vector<at::Tensor>;

inline double error(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor e = expected.to(at::kDouble);
  return ((got.to(at::kDouble) - e).norm() / (e.norm() + 1e-30)).item<double>();
}

/// `f` maps the inputs to outputs; the loss is the sum of outputs times fixed random weights.
inline void expect_same(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& f,
                        double tolerance = 2e-6) {
  Tensors single, wide;
  for (const at::Tensor& t : inputs) {
    single.push_back(t.is_floating_point() ? t.detach().clone().set_requires_grad(true) : t);
    wide.push_back(t.is_floating_point() ? t.detach().to(at::kDouble).set_requires_grad(true) : t);
  }
  const Tensors got = f(single), expected = f(wide);
  ASSERT_EQ(got.size(), expected.size());
  at::manual_seed(1);
  at::Tensor loss = at::zeros({}), wide_loss = at::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].sizes(), expected[i].sizes());
    EXPECT_LT(error(got[i].detach(), expected[i].detach()), tolerance) << "output " << i;
    const at::Tensor weights = at::randn(got[i].sizes());
    loss = loss + (got[i] * weights).sum();
    wide_loss = wide_loss + (expected[i] * weights.to(at::kDouble)).sum();
  }
  loss.backward();
  wide_loss.backward();
  double largest = 0;  // gradient of an input
  for (const at::Tensor& t : wide)
    if (t.is_floating_point() && t.grad().defined()) largest = std::max(largest, t.grad().norm().item<double>());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_floating_point()) continue;
    ASSERT_TRUE(single[i].grad().defined() && wide[i].grad().defined()) << "input " << i;
    // A gradient that is zero (of queries and keys if every query sees one key) is rounding noise in fp32, whose size
    // depends on the processor's summation order; it is small compared with the other gradients.
    const bool zero = wide[i].grad().norm().item<double>() < 1e-9 * largest;
    const double difference = (single[i].grad().to(at::kDouble) - wide[i].grad()).norm().item<double>();
    EXPECT_LT(zero ? difference / largest : error(single[i].grad(), wide[i].grad()), tolerance)
        << "gradient of input " << i;
  }
}

}  // namespace compare
