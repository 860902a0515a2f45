// Log-probabilities of rows against log_softmax over the whole logits, and their gradients.

#include <tessera/nn/sequence_log_probabilities.h>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/nn/autocast.h>
#include <tessera/nn/softcap.h>

namespace tessera::nn {
namespace {

struct Inputs {
  at::Tensor hidden, weight, bias;
};

Inputs inputs(at::ScalarType type) {
  at::manual_seed(3);
  const auto options = at::TensorOptions().dtype(type);
  // 2 rows of 200 tokens: more than one chunk of 256
  return {at::randn({2, 200, 8}, options).requires_grad_(), at::randn({11, 8}, options).requires_grad_(),
          at::randn({11}, options).requires_grad_()};
}

at::Tensor labels() {
  at::Tensor labels = at::arange(400, at::kLong).mul(7).remainder(11).view({2, 200}).clone();
  labels[0].narrow(0, 0, 20).fill_(-100);
  labels[1].narrow(0, 190, 10).fill_(-100);
  return labels;
}

/// The reference, computed from the whole logits.
at::Tensor reference(const Inputs& in, const at::Tensor& labels, double cap, bool bias) {
  at::Tensor logits = at::matmul(in.hidden, in.weight.t());
  if (bias) logits = logits + in.bias;
  logits = softcap(logits, cap);
  const at::Tensor log_p = logits.log_softmax(2).narrow(1, 0, 199), next = labels.narrow(1, 1, 199);
  const at::Tensor own = log_p.gather(2, next.clamp_min(0).unsqueeze(2)).squeeze(2);
  return own.masked_fill(next.eq(-100), 0).sum(1);
}

void expect_same(at::ScalarType type, double cap, bool bias, double bound) {
  const Inputs a = inputs(type), b = inputs(type);
  const at::Tensor found = sequence_log_probabilities(a.hidden, a.weight, labels(), cap, bias ? a.bias : at::Tensor());
  const at::Tensor expected = reference(b, labels(), cap, bias);
  EXPECT_EQ(found.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::allclose(found, expected.to(at::kDouble), bound, bound)) << found << expected;
  const at::Tensor factors = at::tensor({0.5, -2.0}, at::kDouble);
  (found * factors).sum().backward();
  (expected * factors.to(type)).sum().backward();
  EXPECT_TRUE(at::allclose(a.hidden.grad(), b.hidden.grad(), bound, bound));
  EXPECT_TRUE(at::allclose(a.weight.grad(), b.weight.grad(), bound, 10 * bound));
  if (bias) {
    EXPECT_TRUE(at::allclose(a.bias.grad(), b.bias.grad(), bound, 10 * bound));
  }
}

TEST(SequenceLogProbabilities, EqualThoseOfTheWholeLogits) {
  expect_same(at::kDouble, 0, false, 1e-10);
  expect_same(at::kFloat, 0, false, 2e-5);
}

TEST(SequenceLogProbabilities, WithBiasAndSoftcap) { expect_same(at::kDouble, 5, true, 1e-10); }

TEST(SequenceLogProbabilities, FrozenHeadsGetNoGradient) {
  const Inputs in = inputs(at::kFloat);
  const at::Tensor frozen = in.weight.detach();
  sequence_log_probabilities(in.hidden, frozen, labels()).sum().backward();
  EXPECT_TRUE(in.hidden.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
}

TEST(SequenceLogProbabilities, ARowWithoutScoredTokensHasNone) {
  const Inputs in = inputs(at::kFloat);
  at::Tensor none = labels();
  none[0].fill_(-100);
  const at::Tensor found = sequence_log_probabilities(in.hidden, in.weight, none);
  EXPECT_EQ(found[0].item<double>(), 0);
  EXPECT_LT(found[1].item<double>(), 0);
}

TEST(SequenceLogProbabilities, UnderAutocastProductsAreNarrow) {
  const Inputs in = inputs(at::kFloat);
  const at::Tensor exact = sequence_log_probabilities(in.hidden, in.weight, labels()).detach();
  const at::Tensor found = [&] {
    const Autocast narrow(at::kBFloat16, at::kCPU);
    return sequence_log_probabilities(in.hidden, in.weight, labels());
  }();
  EXPECT_FALSE(at::equal(found, exact));
  EXPECT_TRUE(at::allclose(found, exact, 2e-2)) << found << exact;
  found.sum().backward();
  EXPECT_EQ(in.weight.grad().scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace tessera::nn
