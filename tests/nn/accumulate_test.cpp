#include <tessera/nn/accumulate.h>

#include <gtest/gtest.h>
#include <tests/parallel/allocated.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <tessera/nn/embedding.h>
#include <tessera/nn/linear.h>
#include <tessera/nn/weight_gradients.h>

#include <optional>

namespace {

using namespace tessera;
using namespace tessera::nn;

constexpr std::int64_t rows = 40, in = 96, out = 64, vocabulary = 300;

struct Net {
  at::Tensor weight, table;
  bool out_first;

  Net(at::ScalarType type, bool out_first) : out_first(out_first) {
    at::manual_seed(3);
    weight = (out_first ? at::randn({out, in}, type) : at::randn({in, out}, type)).requires_grad_();
    table = at::randn({vocabulary, in}, type).requires_grad_();
  }
  at::Tensor loss(int pass) const {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(pass));
    const at::Tensor ids = at::randint(0, vocabulary, {2, rows / 2}, generator, at::kLong);
    const at::Tensor y = linear(embed_tokens(table, ids, /*padding_idx=*/5), weight, {},
                                out_first ? WeightLayout::out_in : WeightLayout::in_out);
    return y.square().mean();
  }
};

double per_source(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

TEST(AccumulateInPlace, gives_the_sum_of_the_passes) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const bool out_first : {false, true})
      for (const bool late : {false, true}) {
        const Net plain(type, out_first), fused(type, out_first);
        for (int pass = 0; pass < 3; ++pass) plain.loss(pass).backward();
        const void* memory = nullptr;
        for (int pass = 0; pass < 3; ++pass) {
          const AccumulateInPlace in_place;
          if (late) {
            const auto gradients = c10::make_intrusive<WeightGradients>();
            at::Tensor loss;
            {
              const WeightGradients::Scope forward(gradients, /*defer=*/false);
              loss = fused.loss(pass);
            }
            {
              const WeightGradients::Scope backward(gradients, /*defer=*/true);
              loss.backward();
            }
            gradients->compute();
          } else {
            fused.loss(pass).backward();
          }
          if (pass == 0) memory = fused.weight.grad().data_ptr();
        }
        EXPECT_EQ(fused.weight.grad().data_ptr(), memory);
        const double bound = type == at::kDouble ? 1e-14 : 1e-6;
        EXPECT_LE(per_source(fused.weight.grad(), plain.weight.grad()), bound);
        EXPECT_LE(per_source(fused.table.grad(), plain.table.grad()), bound);
        EXPECT_EQ(fused.table.grad()[5].abs().sum().item<double>(), 0) << "padding";
      }
}

TEST(AccumulateInPlace, makes_no_tensor_of_the_weights_sizes) {
  const auto peak = [](bool fused) {
    const Net net(at::kFloat, true);
    net.loss(0).backward();
    std::optional<AccumulateInPlace> in_place;
    if (fused) in_place.emplace();
    const at::Tensor loss = net.loss(1);
    const tessera::testing::Allocated allocated;
    loss.backward();
    return allocated.peak();
  };
  EXPECT_GE(peak(false), 4 * vocabulary * in);
  EXPECT_LT(peak(true), peak(false) - 4 * vocabulary * in / 2);
}

// Hooks on a parameter see its gradient, and torch::autograd::grad() returns it.
TEST(AccumulateInPlace, steps_back_where_somebody_looks) {
  const AccumulateInPlace in_place;
  const Net net(at::kFloat, true);
  net.loss(0).backward();
  const at::Tensor before = net.weight.grad().clone();

  const auto asked = torch::autograd::grad({net.loss(1)}, {net.weight, net.table});
  ASSERT_TRUE(asked[0].defined() && asked[1].defined());
  EXPECT_TRUE(at::equal(net.weight.grad(), before)) << "grad() must not change";

  at::Tensor seen;
  const unsigned hook = net.weight.register_hook([&](const at::Tensor& gradient) { seen = gradient.clone(); });
  net.loss(1).backward();
  net.weight.remove_hook(hook);
  ASSERT_TRUE(seen.defined());
  EXPECT_TRUE(at::equal(seen, asked[0]));
  EXPECT_LE(per_source(net.weight.grad(), before + asked[0]), 1e-6);
}

}  // namespace
