// Backward in two parts gives the same bits as a single backward.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <tessera/base/error.h>
#include <tessera/nn/nn.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using nn::WeightGradients;
using nn::WeightLayout;

struct Net {
  at::Tensor x, a, a_bias, b, c, norm;  // a is used twice, c has no bias, norm is not a linear map

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
    for (int pass = 0; pass < 3; ++pass) {  // gradients accumulate
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

// Only the products' operands are kept: activations saved by other functions are freed after the first part.
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

/// Reports when backward reaches this point.
struct GradientMessage : torch::autograd::Function<GradientMessage> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, std::vector<std::string>* log,
                            const std::string& name) {
    ctx->saved_data["log"] = reinterpret_cast<std::int64_t>(log);
    ctx->saved_data["name"] = name;
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& gradients) {
    reinterpret_cast<std::vector<std::string>*>(ctx->saved_data["log"].toInt())
        ->push_back(ctx->saved_data["name"].toStringRef());
    return {gradients[0], {}, {}};
  }
};

TEST(LateGradients, AreFormedBetweenWhatWasMadeBeforeAndAfter) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    at::manual_seed(7);
    const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(type).requires_grad_(); };
    const at::Tensor x = draw({3, 4}), a = draw({4, 5}), a_bias = draw({5}), b = draw({5, 4});
    std::vector<std::string> log;
    a.register_hook([&](const at::Tensor&) { log.push_back("a"); });
    a_bias.register_hook([&](const at::Tensor&) { log.push_back("a_bias"); });
    b.register_hook([&](const at::Tensor&) { log.push_back("b"); });
    const auto gradients = [&](bool late) {
      log.clear();
      const at::Tensor first = GradientMessage::apply(x, &log, std::string("awaited"));
      const std::uint64_t place = at::sequence_number::get_and_increment();
      const at::Tensor entered = GradientMessage::apply(first, &log, std::string("started"));
      const at::Tensor y = late ? nn::linear_late(entered, a, a_bias, WeightLayout::in_out, place)
                                : nn::linear(entered, a, a_bias, WeightLayout::in_out);
      const at::Tensor z = late ? nn::linear_late(entered, b, {}, WeightLayout::out_in, place)
                                : nn::linear(entered, b, {}, WeightLayout::out_in);
      return torch::autograd::grad({(y.square() + z.sin()).sum()}, {x, a, a_bias, b});
    };
    const auto wanted = gradients(false);
    EXPECT_EQ(log.back(), "awaited");
    EXPECT_NE(log[0], "started");
    expect_same(gradients(true), wanted, "late");
    ASSERT_EQ(log.size(), 5u);
    EXPECT_EQ(log.front(), "started");
    EXPECT_EQ(log.back(), "awaited");
  }
}

TEST(LateGradients, FrozenWeightsAndBiasesHaveNone) {
  for (const bool of_weight : {false, true}) {
    const at::Tensor x = at::ones({3, 4}).requires_grad_(), w = at::ones({4, 5}).requires_grad_(of_weight),
                     bias = at::ones({5}).requires_grad_(!of_weight);
    nn::linear_late(x, w, bias, WeightLayout::in_out, 0).sum().backward();
    EXPECT_EQ(w.grad().defined(), of_weight);
    EXPECT_EQ(bias.grad().defined(), !of_weight);
    EXPECT_TRUE(at::equal(of_weight ? w.grad() : bias.grad(), of_weight ? at::full({4, 5}, 3.0) : at::full({5}, 3.0)));
  }
}

// Late gradients under a pipeline's backward in two parts: the pipeline's scope takes over; nothing is computed twice
// or lost.
TEST(LateGradients, UnderAScopeThatDefersTheScopeDecides) {
  const at::Tensor x = at::ones({3, 4}).requires_grad_(), w = at::ones({4, 5}).requires_grad_();
  const auto late = c10::make_intrusive<WeightGradients>();
  at::Tensor loss;
  {
    const WeightGradients::Scope scope(late, /*defer=*/false);
    loss = nn::linear_late(x, w, {}, WeightLayout::in_out, 0).sum();
  }
  {
    const WeightGradients::Scope scope(late, /*defer=*/true);
    loss.backward();
  }
  EXPECT_FALSE(w.grad().defined());
  late->compute();
  EXPECT_TRUE(at::equal(w.grad(), at::full({4, 5}, 3.0)));
}

TEST(LinearInParts, TellsOfEachPartAsSoonAsItIsThere) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const WeightLayout layout : {WeightLayout::in_out, WeightLayout::out_in})
      for (const std::int64_t rows : {1, 2, 5}) {
        const at::Tensor x = at::randn({rows, 3, 4}).to(type).requires_grad_(),
                         w = at::randn(layout == WeightLayout::in_out ? at::IntArrayRef{4, 6} : at::IntArrayRef{6, 4})
                                 .to(type)
                                 .requires_grad_();
        const at::Tensor wanted = nn::linear(x, w, {}, layout);
        std::int64_t first = 0, calls = 0;
        const auto computed = [&](const at::Tensor& part) {
          EXPECT_FALSE(part.requires_grad());
          EXPECT_TRUE(part.is_contiguous());
          EXPECT_TRUE(at::allclose(part, wanted.narrow(0, first, part.size(0)), 1e-5, 1e-6));
          first += part.size(0);
          ++calls;
          part.mul_(2);  // the caller may change it
        };
        const at::Tensor y = nn::linear_in_parts(x, w, layout, {2, computed});
        EXPECT_EQ(first, rows);
        EXPECT_EQ(calls, std::min<std::int64_t>(rows, 2));
        EXPECT_TRUE(at::allclose(y, wanted * 2, 1e-5, 1e-6));
        const auto of = [&](const at::Tensor& out) { return torch::autograd::grad({out.sum()}, {x, w}); };
        expect_same(of(y), of(wanted), "parts");
      }
}

}  // namespace
