// Backward in two parts gives the bits of the whole one.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <tessera/base/error.h>
#include <tessera/nn/nn.h>

#include <functional>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using nn::WeightGradients;
using nn::WeightLayout;

struct Net {
  at::Tensor x, a, a_bias, b, c, norm;  // a is used twice, c has no bias, norm is no linear map

  explicit Net(at::ScalarType type) {
    at::manual_seed(3);
    const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes).mul_(0.3).to(type).requires_grad_(); };
    x = draw({2, 5, 8});
    a = draw({8, 8});
    a_bias = draw({8});
    b = draw({8, 16});
    c = draw({8, 16});
    norm = draw({8});
  }
  at::Tensor loss() const {
    const at::Tensor first = at::tanh(nn::linear(x, a, a_bias, WeightLayout::out_in));
    const at::Tensor second = at::tanh(nn::linear(first * norm, a, {}));
    const at::Tensor third = at::tanh(nn::linear(second, b, {}));
    return nn::linear(third, c, {}, WeightLayout::out_in).square().sum();
  }
  std::vector<at::Tensor> all() const { return {x, a, a_bias, b, c, norm}; }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all_gradients;
    for (const at::Tensor& t : all()) all_gradients.push_back(t.grad().defined() ? t.grad().clone() : at::Tensor());
    return all_gradients;
  }
};

struct Case {
  std::string name;
  at::ScalarType type;
  bool autocast = false;
};

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, const std::string& what) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << what << ": tensor " << i;
}

TEST(WeightGradients, TheBitsOfAWholeBackward) {
  const std::vector<Case> cases = {{"fp32", at::kFloat},
                                   {"fp64", at::kDouble},
                                   {"bf16", at::kBFloat16},
                                   {"autocast", at::kFloat, true},
                                   {"autocast of bf16", at::kBFloat16, true}};
  for (const Case& one : cases) {
    const Net net(one.type), divided(one.type);
    for (int pass = 0; pass < 3; ++pass) {  // gradients add up
      const auto run = [&](const Net& which) {
        const nn::Autocast autocast(one.autocast, at::kCPU);
        return which.loss();
      };
      run(net).backward();
      const auto late = c10::make_intrusive<WeightGradients>();
      at::Tensor loss;
      {
        const WeightGradients::Scope scope(late, /*defer=*/false);
        loss = run(divided);
      }
      {
        const WeightGradients::Scope scope(late, /*defer=*/true);
        loss.backward();
      }
      EXPECT_FALSE(late->empty());
      if (pass == 0) {
        EXPECT_TRUE(divided.x.grad().defined() && divided.norm.grad().defined()) << one.name;
        EXPECT_FALSE(divided.a.grad().defined() || divided.a_bias.grad().defined() || divided.b.grad().defined() ||
                     divided.c.grad().defined())
            << one.name;
      }
      late->compute();
      EXPECT_TRUE(late->empty());
      late->compute();  // nothing
      expect_same(divided.gradients(), net.gradients(), concat(one.name, ", pass ", pass));
    }
  }
}

TEST(WeightGradients, AWholeBackwardUnderAScopeIsOne) {
  const Net net(at::kFloat), other(at::kFloat);
  net.loss().backward();
  const auto late = c10::make_intrusive<WeightGradients>();
  at::Tensor loss;
  {
    const WeightGradients::Scope scope(late, /*defer=*/false);
    loss = other.loss();
  }
  loss.backward();
  EXPECT_TRUE(late->empty());
  expect_same(other.gradients(), net.gradients(), "B");
}

TEST(WeightGradients, FrozenWeights) {
  const Net net(at::kFloat), other(at::kFloat);
  const auto late = c10::make_intrusive<WeightGradients>();
  for (const Net* which : {&net, &other}) {
    for (at::Tensor t : {which->a, which->b}) t.requires_grad_(false);
    const WeightGradients::Scope scope(late, /*defer=*/which == &other);
    which->loss().backward();
  }
  late->compute();
  EXPECT_FALSE(other.a.grad().defined() || other.b.grad().defined());
  expect_same({other.a_bias.grad(), other.c.grad(), other.norm.grad(), other.x.grad()},
              {net.a_bias.grad(), net.c.grad(), net.norm.grad(), net.x.grad()}, "frozen");
}

// Only what products need waits: activations that others saved are free after the first part.
TEST(WeightGradients, HoldNoGraph) {
  const auto late = c10::make_intrusive<WeightGradients>();
  const at::Tensor weight = at::randn({8, 8}).requires_grad_(), x = at::randn({4, 8}).requires_grad_();
  c10::weak_intrusive_ptr<c10::StorageImpl> hidden(at::zeros({1}).storage().getWeakStorageImpl());
  {
    const WeightGradients::Scope scope(late, /*defer=*/true);
    const at::Tensor y = x.sigmoid();
    hidden = c10::weak_intrusive_ptr<c10::StorageImpl>(y.storage().getWeakStorageImpl());
    nn::linear(y * 2, weight, {}).sum().backward();
  }
  EXPECT_TRUE(hidden.expired());
  late->compute();
  EXPECT_TRUE(weight.grad().defined());
}

TEST(WeightGradients, LeftOnesAreDropped) {
  const at::Tensor weight = at::randn({8, 8}).requires_grad_(), x = at::randn({4, 8}).requires_grad_();
  {
    const auto late = c10::make_intrusive<WeightGradients>();
    const WeightGradients::Scope scope(late, /*defer=*/true);
    nn::linear(x, weight, {}).sum().backward();
  }
  EXPECT_FALSE(weight.grad().defined());
  nn::linear(x, weight, {}).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

}  // namespace
